//! Several real servers on one store: takeover, faults under load, copies that are lost.

// In a test a panic is the way to fail.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod basics;
mod cluster;
mod engines;
mod faults;
mod http;
mod load;
mod outbox;
mod private;
mod proxy;
#[path = "../bus/shifted.rs"]
mod shifted;
