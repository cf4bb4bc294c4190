#![no_main]
//! See `highwater_fuzz::store_index`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::store_index(data));
