#![no_main]
//! See `highwater_fuzz::sqlite_meta`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::sqlite_meta(data));
