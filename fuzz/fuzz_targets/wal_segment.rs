#![no_main]
//! See `highwater_fuzz::wal_segment`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::wal_segment(data));
