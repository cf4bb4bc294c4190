#![no_main]
//! See `highwater_fuzz::host_files`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::host_files(data));
