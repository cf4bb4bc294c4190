#![no_main]
//! See `highwater_fuzz::control_records`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::control_records(data));
