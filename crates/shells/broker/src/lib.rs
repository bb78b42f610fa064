//! The shell that drives the bus engine: an owner, a writer, a few readers.
//!
//! ```text
//! edges --requests--> owner --batches--> writer --one commit, one sync--> store
//!   ^                 |  ^ ^                |
//!   |                 |  | '---outcomes-----'
//!   '----outboxes-----'  '-----pages------- readers <--reads-- owner
//! ```
//!
//! The owner alone touches the engine. In each turn it passes the waiting inputs to the engine, lets the engine decide,
//! and carries out the effects; it never waits for a disk or a socket. Owner and writer are jobs, not threads: two
//! threads share them (see `workers`; `schedule` decides who does what), so that a lone request need not wait for a sleeping thread to wake, and while one
//! thread waits for the disk the other can decide. A slow disk fills the writer's backlog; when that is full the owner
//! takes no more requests, so the edges stop reading their sockets. A client that reads slowly fills its own outbox and
//! nobody else's. A monitor thread reports what a slow commit waits for, and when the disk is full.
//!
//! This crate parses no frames and knows no sockets (the server does), decides nothing (the engine does), and knows no
//! database (the store port does).
//!
//! Start with [`Broker::start`], then [`BrokerHandle`].

mod backlog;
mod boot;
mod broker;
mod command;
mod connection;
mod dispatch;
mod handle;
mod health;
mod inbox;
mod jobs;
mod metrics;
mod monitor;
mod notes;
mod outbox;
mod owner;
mod readers;
mod rows;
mod schedule;
#[cfg(test)]
mod schedule_tests;
mod schemas;
mod settings;
mod shared;
mod sync;
mod watcher;
mod workers;
mod writer;

pub use broker::{Broker, StartError, StopOutcome};
pub use connection::{BusConnection, OutboundBacklog};
pub use handle::{BrokerCall, BrokerHandle};
pub use health::{Health, Stall};
pub use inbox::Ended;
pub use metrics::{Histogram, HistogramView, ShellView};
pub use millrace_shell::{BatchWriter, RowWriteError, SystemClock};
pub use outbox::{Item, Received};
pub use settings::BrokerSettings;
