#![no_main]
//! See `highwater_fuzz::node_restored`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::node_restored(data));
