//! `millrace run` tested from outside: the real binary, modules in the text format, scripts and recordings in files.

// The harness is shared with the tests of the command line, and in a test a panic is the way to fail.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod broken;
mod bus_and_store;
mod capabilities;
mod determinism;
mod endings;
mod fairness;
mod in_handler;
mod program;
mod recordings;
#[path = "../cli/run.rs"]
mod run;
mod scripts;
#[path = "../bus/server.rs"]
mod server;
mod settings;
#[path = "../bus/socket.rs"]
mod socket;
mod stage;
