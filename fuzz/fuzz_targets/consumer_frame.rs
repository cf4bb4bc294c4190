#![no_main]
//! See `highwater_fuzz::consumer_frame`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::consumer_frame(data));
