#![no_main]
//! See `highwater_fuzz::http_json`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::http_json(data));
