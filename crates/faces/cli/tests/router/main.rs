//! The CQRS loop tested from outside: the real binary, its Unix socket, raw bytes.

// Every module uses only some functions of the harness.
#![allow(dead_code, unreachable_pub)]

mod access;
mod adversarial;
mod bus;
mod children;
mod client;
mod events;
mod framing;
mod lineage;
mod lives;
mod many;
mod memory;
mod namespaces;
mod observe;
mod order;
mod pending;
mod place;
#[path = "../bus/server.rs"]
mod server;
#[path = "../bus/socket.rs"]
mod socket;
mod stop;
mod syscalls;
mod timers;
mod trace;
mod web;
