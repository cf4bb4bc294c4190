#![no_main]
//! See `highwater_fuzz::stream_state`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::stream_state(data));
