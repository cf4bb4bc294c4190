#![no_main]
//! See `highwater_fuzz::store_marker`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::store_marker(data));
