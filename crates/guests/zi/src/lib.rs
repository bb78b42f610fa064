//! The C library of zABI 2.5 (`libzi.so`, `libzi.a`, header `include/zi.h`): a native program that links it is a guest.
//!
//! The calls work on the program's own memory. The library makes one [`millrace_zabi::Process`] for the whole program,
//! at the first call that needs it, with the grants that the environment names (`settings.rs`). Threads take turns at
//! it (`turns.rs`), and a POLL that waits ends early when another thread wants its turn.
//!
//! All rules of zABI are in `millrace-zabi`. This crate works with raw pointers, in one module, which is the only one
//! that allows `unsafe` code. Start with `c_calls.rs`.

mod blocks;
mod c_calls;
mod calls;
mod host;
mod settings;
mod standard;
mod turns;
