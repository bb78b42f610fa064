//! Several real servers on one store: takeover, faults under load, copies that are lost.

// In a test a panic is the way to fail.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod absent;
mod basics;
mod bench;
mod cluster;
mod doubt;
mod engines;
mod faults;
mod full_disk;
mod http;
mod load;
mod outbox;
mod postgres;
mod private;
mod proxy;
mod refusals;
mod reload;
mod replicated;
mod set_back;
#[path = "../bus/shifted.rs"]
mod shifted;
