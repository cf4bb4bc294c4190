#![no_main]
//! See `highwater_fuzz::host_secret`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::host_secret(data));
