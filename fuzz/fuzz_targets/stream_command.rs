#![no_main]
//! See `highwater_fuzz::stream_command`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::stream_command(data));
