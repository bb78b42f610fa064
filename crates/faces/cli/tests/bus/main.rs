//! The bus tested from outside: the real binary, its sockets, SIGKILL.

// Every module uses only some functions of the harness.
#![allow(dead_code, unreachable_pub)]

mod access;
mod access_certificates;
mod access_content;
mod access_expiry;
mod access_http;
mod access_lists;
mod access_rates;
mod access_tls;
mod answers_delivery;
mod answers_protocol;
mod asyncapi;
mod attempts;
mod bad_http;
mod bad_input;
mod caused;
mod clock;
mod cloud_events;
mod compaction;
mod crash;
mod crowd;
#[cfg(target_os = "linux")]
mod disk;
mod envelopes;
mod fuzz;
mod groups;
mod handler_work;
mod handlers;
mod http;
mod ids;
mod inspect;
mod jobs;
mod messages;
mod metrics;
mod observe;
mod openapi;
mod pressure;
mod recipe;
mod reload;
mod retention;
mod schemas;
mod server;
mod server_pages;
mod shifted;
mod socket;
mod stalls;
mod stop;
mod storage;
mod strangers;
mod together;
mod together_delayed;
mod told;
mod totals;
mod traces;
