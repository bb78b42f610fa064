//! The shell that drives the bus engine: an owner, a writer, a few readers.
//!
//! ```text
//! edges --requests--> owner --batches--> writer --one commit, one sync--> store
//!   ^                 |  ^ ^                |
//!   |                 |  | '---outcomes-----'
//!   '----outboxes-----'  '-----pages------- readers <--reads-- owner
//! ```
//!
//! The owner alone touches the engine. It takes what has happened, lets the engine decide, and carries the effects
//! out; it never waits for a disk or a socket. Owner and writer are jobs, not threads: two threads share them, so that
//! a lone request need not wait until a sleeping thread has woken (see `crew`), and while one waits for the disk the
//! other can decide. A slow disk fills the writer's backlog, at whose bound the owner takes
//! no more requests, so the edges stop reading their sockets. A slow reader fills its own outbox and nobody else's. A
//! monitor beside them tells what a slow commit waits for, and when the disk has no room.
//!
//! What it does not do: it parses no frames and knows no sockets (the server does), it decides nothing (the engine
//! does), it knows no database (the store port does).
//!
//! Start with [`Broker::start`], then [`Handle`].

mod boot;
mod broker;
mod crew;
mod dispatch;
mod handle;
mod health;
mod inbox;
mod link;
mod metrics;
mod monitor;
mod notes;
mod outbox;
mod owner;
mod readers;
mod schemas;
mod settings;
mod watcher;
mod writer;

pub use broker::{Broker, StartError, StopOutcome};
pub use handle::{Call, Ended, Handle};
pub use health::{Health, Stall};
pub use link::Link;
pub use metrics::{HistogramView, ShellView};
pub use millrace_shell::SystemClock;
pub use outbox::{Item, Taken};
pub use settings::BrokerSettings;
