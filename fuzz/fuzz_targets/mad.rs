#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| uroce_fuzz::mad(data));
