#![no_main]
//! See `highwater_fuzz::store_folder`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::store_folder(data));
