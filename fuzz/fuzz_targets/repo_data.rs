#![no_main]
//! See `highwater_fuzz::repo_data`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::repo_data(data));
