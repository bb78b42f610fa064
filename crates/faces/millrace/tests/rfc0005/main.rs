//! Tests of the 17 points that the source document of durable handlers requires, one file each, and of our requirements
//! beyond it. Most tests run on virtual time; tests of files and processes use real ones.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test may panic")]

mod words;

mod p01_explicit_commit;
mod p02_commit_event;
mod p03_ordering;
mod p04_per_handler_acks;
mod p05_lease_expiry;
mod p06_slow_handler;
mod p07_event_buffering;
mod p08_commit_failure;
mod p09_chain_depth;
mod p10_iteration_limit;
mod p11_backoff;
mod p12_dead_letters;
mod p13_schedules;
mod p14_namespaces;
mod p15_sessions;
mod p16_default_namespace;
mod p17_types;

mod beyond;
mod files;
mod limits;
mod sizes;
