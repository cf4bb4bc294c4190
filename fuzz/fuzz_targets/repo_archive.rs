#![no_main]
//! See `highwater_fuzz::repo_archive`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::repo_archive(data));
