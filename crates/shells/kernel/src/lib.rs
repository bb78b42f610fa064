//! The shell of the CQRS loop: the thread it lives on, the mailboxes of the capabilities, the ways in.
//!
//! A capability is a [`Capability`]: what it takes and says, and the functions that do the work. One message at a time
//! comes out of its mailbox; what it says goes back to the loop. The loop only routes and never waits for a handler.
//!
//! What it does not do: it decides nothing about messages (the engine, `millrace-router`, does) and knows no shape of a
//! line (`millrace-wire` does).
//!
//! Everything of the loop lives on one thread: the engine, the connections of the socket, the light built-ins, the ends of
//! the mailboxes. A request that a built-in answers never changes threads. Handlers that wait for the world run on the
//! runtime the loop was given; other threads talk to it through [`LoopHandle`].
//!
//! Start with [`Capability`] to write one, with [`LoopHandle::start`] to run the loop.

mod behalf;
mod builtin;
mod capability;
mod change;
mod child;
mod commits;
mod conns;
mod context;
mod counts;
mod credentials;
mod ear;
mod handlers;
mod inbox;
mod manifest;
mod ndjson;
mod notes;
mod pause;
mod port;
mod remote;
mod run;
mod settings;
mod shell;
mod start;
mod syscalls;
mod watch;

pub use builtin::{FeedLimits, Feeds, MemoryLimits, Shelf, bus, memory};
pub use capability::{ActorFuture, Capability, CapabilityError, Place};
pub use change::{BusFeed, ChangeError};
pub use child::{
    Changed, Child, ChildError, ChildLimits, ChildSettings, Children, Guard, ReloadError, become_guarded,
};
pub use commits::Commit;
pub use context::Context;
pub use counts::ShellCounts;
pub use credentials::{CheckToken, Credentials, Rights, TokenError, Vouch, shown_token};
pub use inbox::{Ended, LoopLink};
pub use millrace_model::{JsonText, OsFault, OsMessage};
pub use millrace_router::BusTopic;
pub use ndjson::{PlaceError, SocketPlace, default_path};
pub use port::{Delivery, Port};
pub use remote::{OsReceiver, OsSender};
pub use settings::LoopSettings;
pub use start::{Asked, LoopError, LoopHandle, LoopParts, LoopView};
pub use watch::{Seen, Watch};
