//! The command line from the outside: the real binary, its settings, its output, its exit codes.

// The harness is shared with the tests of the bus, and in a test a panic is how a failure is said.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod backup;
mod bench;
mod completions;
mod doctor;
mod ends;
mod events;
mod exit_codes;
mod openapi;
mod os_client;
mod pub_sub;
mod run;
mod send;
#[path = "../bus/server.rs"]
mod server;
mod settings;
#[path = "../bus/socket.rs"]
mod socket;
mod topics;
