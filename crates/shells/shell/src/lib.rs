//! What the shells around the engines share. A program that only runs handlers uses it without the broker's shell
//! (`millrace-broker`) and what that one needs.
//!
//! What is not here: anything that knows an engine, a store or a socket.
//!
//! Start with [`SystemClock`].

mod clock;

pub use clock::SystemClock;
