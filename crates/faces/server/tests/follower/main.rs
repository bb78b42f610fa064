//! A server that follows: history, probes and metrics come from its copy, everything else is sent to the leader. And a
//! leader that loses the lead.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod deposed;
mod doubt;
mod fake;
mod gate;
mod history;
mod moved;
mod positions;
mod probes;
#[path = "../support/mod.rs"]
mod support;
mod takeover;
