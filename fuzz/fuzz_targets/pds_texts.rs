#![no_main]
//! See `highwater_fuzz::pds_texts`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::pds_texts(data));
