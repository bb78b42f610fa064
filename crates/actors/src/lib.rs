//! The shell of the CQRS loop: the thread it lives on, the mailboxes of the capabilities, the ways in.
//!
//! A capability is a [`Capability`]: what it takes and says, and the functions that do the work. One message at a time
//! comes out of its mailbox; what it says goes back to the loop. The loop only routes and never waits for a handler.
//!
//! What it does not do: it decides nothing about messages (the engine, `millrace-router`, does) and knows no shape of a
//! line (`millrace-wire` does).
//!
//! Start with [`Capability`] to write one.

#![allow(dead_code, reason = "the loop that uses it lands next")]

mod builtin;
mod capability;
mod context;
mod ear;
mod inbox;
mod port;

pub use builtin::{MemoryLimits, Shelf, memory};
pub use capability::{ActorFuture, Capability, CapabilityError, Place};
pub use context::Context;
pub use inbox::{Ended, LoopLink};
pub use port::{Delivery, Port};
