//! Several real servers on one store: takeover, faults under load, copies that are lost.

// In a test a panic is the way to fail.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod basics;
mod bench;
mod cluster;
mod doubt;
mod engines;
mod faults;
mod load;
mod outbox;
mod proxy;
#[path = "../bus/shifted.rs"]
mod shifted;
