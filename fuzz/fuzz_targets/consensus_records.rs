#![no_main]
//! See `highwater_fuzz::consensus_records`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::consensus_records(data));
