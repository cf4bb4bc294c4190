#![no_main]
//! See `highwater_fuzz::store_residence`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::store_residence(data));
