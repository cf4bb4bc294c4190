#![no_main]
//! See `highwater_fuzz::pds_records`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::pds_records(data));
