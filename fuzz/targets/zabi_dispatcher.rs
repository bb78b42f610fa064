//! The target `zabi_dispatcher`: see `src/dispatcher.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millrace_fuzz::dispatcher::check(input));
