#![no_main]
//! See `highwater_fuzz::client_answer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::client_answer(data));
