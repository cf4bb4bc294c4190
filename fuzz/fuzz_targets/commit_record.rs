#![no_main]
//! See `highwater_fuzz::commit_record`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::commit_record(data));
