//! The client against a fake server: every way in which a connection can begin and end, without a real server.

// In a test an unmet expectation is a failure, reported by a panic.
#![allow(clippy::unwrap_used)]

mod fake;
mod hang;
mod leader;
mod publish;
mod servers;
mod subscribe;
