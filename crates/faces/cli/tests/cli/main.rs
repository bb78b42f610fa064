//! The command line tested from outside: the real binary, its settings, its output, its exit codes.

// The harness is shared with the tests of the bus, and in a test a panic is the way to fail.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod backup;
mod bench;
mod completions;
mod demo;
mod doctor;
mod ends;
mod events;
mod exit_codes;
#[cfg(target_os = "linux")]
#[path = "../bus/disk/faults.rs"]
mod faults;
mod first_token;
mod groups_and_jobs;
mod handlers;
mod health;
mod man;
mod modes;
mod names;
mod openapi;
mod os_client;
mod packaging;
mod pub_sub;
mod restore_cuts;
mod run;
mod send;
#[path = "../bus/server.rs"]
mod server;
mod servers;
mod settings;
mod single_handlers;
#[path = "../bus/socket.rs"]
mod socket;
mod supervisor;
mod topics;
mod versions;
