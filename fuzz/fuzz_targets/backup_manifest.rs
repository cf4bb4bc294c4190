#![no_main]
//! See `highwater_fuzz::backup_manifest`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::backup_manifest(data));
