//! `millrace guest` tested from outside: the real binary, real sockets, guests as module text and compiled from C.

// The harness is shared with the tests of the command line, and in a test a panic is the way to fail.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod broken;
mod echo;
mod ends;
mod examples;
mod granted;
mod hostile;
mod program;
#[path = "../cli/run.rs"]
mod run;
#[path = "../bus/server.rs"]
mod server;
mod server_bus;
#[path = "../bus/socket.rs"]
mod socket;
mod stage;
mod timers;
