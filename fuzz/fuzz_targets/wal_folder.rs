#![no_main]
//! See `highwater_fuzz::wal_folder`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::wal_folder(data));
