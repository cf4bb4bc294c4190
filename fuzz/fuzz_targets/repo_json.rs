#![no_main]
//! See `highwater_fuzz::repo_json`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::repo_json(data));
