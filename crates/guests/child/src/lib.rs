//! Capabilities in other languages: child processes that speak OsMessage lines on stdin and stdout.
//!
//! The first line of a child is its manifest. Then it is handed one message at a time, like every other actor: the next
//! request after the outcome of the one before. Each process of the child is one *run* of it (`child_run.rs`): a
//! child that ends by itself is started again, a few times (`supervise.rs`). The end of its stdin tells a child to end.
//! A child that does not end is killed when the server ends, also when the server is killed if the child is guarded
//! ([`Guard`]).
//!
//! Not in this crate: the loop. A child is an actor of `millrace-kernel` like any other: this crate takes its messages
//! from a `Port` and changes the loop through a `KernelHandle`.
//!
//! Start with [`Children`], the children of a configuration, or with [`Child`] for a single one.

mod child_run;
mod given;
mod guard;
mod in_progress;
mod process;
mod reload;
mod settings;
mod spawner;
mod stamp;
mod start;
mod stderr_log;
mod supervise;
mod sweep;

pub use guard::{Guard, become_guarded};
pub use reload::{Changed, Children, ReloadError};
pub use settings::{ChildLimits, ChildSettings};
pub use start::{Child, ChildError};
