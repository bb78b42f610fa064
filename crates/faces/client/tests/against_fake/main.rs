//! The client against a server that plays a part: every way a connection can come and go, without a real broker.

// In a test an unmet expectation is a failure, and a panic is how it is said.
#![allow(clippy::unwrap_used)]

mod fake;
mod hang;
mod publish;
mod subscribe;
