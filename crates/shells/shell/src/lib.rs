//! Code that the shells around the engines share. A program that only runs handlers can use it without the shell of the
//! bus (`millrace-broker`) and that crate's dependencies.
//!
//! Nothing here knows an engine, a store or a socket.
//!
//! Start with [`SystemClock`].

mod clock;

pub use clock::SystemClock;
