//! The bus from the outside: the real binary, its sockets, SIGKILL.

// Every module uses its own part of the harness.
#![allow(dead_code, unreachable_pub)]

mod access;
mod access_http;
mod access_lists;
mod access_rates;
mod access_tls;
mod answers_delivery;
mod answers_protocol;
mod asyncapi;
mod bad_http;
mod bad_input;
mod cloud_events;
mod compaction;
mod crash;
mod crowd;
mod fuzz;
mod groups;
mod http;
mod ids;
mod metrics;
mod observe;
mod openapi;
mod pressure;
mod recipe;
mod reload;
mod retention;
mod server;
mod socket;
mod stop;
mod storage;
mod together;
mod traces;
