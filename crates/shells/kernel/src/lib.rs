//! The shell of the CQRS loop: drives the engine `millrace-router`, which routes messages between clients and
//! capabilities. The crate holds the loop's thread, the mailboxes of the capabilities, and the ways in (socket, other
//! threads).
//!
//! A capability is a [`Capability`]: the messages it takes and emits, and the functions that do the work. A capability
//! gets one message at a time from its mailbox, and the messages it emits go back to the loop. The loop only routes and
//! never waits for a handler.
//!
//! This crate decides nothing about messages (the engine does), does not know the format of a line (`millrace-wire`
//! does), and starts no processes (`millrace-child` does: a child is an actor with a [`Port`], see
//! [`Capability::of_manifest`]).
//!
//! A single thread holds the engine, the connections of the socket, the light built-ins and the mailboxes. A request
//! that such a built-in answers never changes threads. Handlers that wait for input or output run on the tokio runtime
//! the loop was given; other threads talk to the loop through [`KernelHandle`].
//!
//! Start with [`Capability`] to write one, with [`KernelHandle::start`] to run the loop.

mod builtin;
mod capabilities;
mod clients;
mod kernel_thread;
mod ndjson;
mod settings;
mod syscalls;

pub use builtin::{FeedLimits, Feeds, MemoryLimits, ValueCache, bus, memory};
pub use capabilities::capability::{
    ActorFuture, Capability, CapabilityError, CapabilityOrigin, HandlerPlace,
};
pub use capabilities::change::{BusFeed, CapabilityView, ChangeError};
pub use capabilities::context::Context;
pub use capabilities::port::{Delivery, Port};
pub use clients::audit_hook::{AuditEvent, AuditHook};
pub use clients::conns::SocketConnection;
pub use clients::credentials::{CheckSender, CheckToken, Credentials, Rights, TokenError, shown_token};
pub use clients::remote::{OsBacklog, OsReceiver, OsSender};
pub use kernel_thread::counts::ShellCounts;
pub use kernel_thread::inbox::{KernelEnded, KernelSender, Mint};
pub use kernel_thread::start::{
    HostRequest, KernelError, KernelHandle, KernelParts, KernelView, NotReloaded,
};
pub use millrace_model::{JsonText, OsFault, OsMessage};
pub use millrace_router::{BusTopic, CapabilityState};
pub use ndjson::{SocketFile, SocketPathError, default_path};
pub use settings::KernelSettings;
