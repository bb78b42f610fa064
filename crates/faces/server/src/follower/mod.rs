//! A server that follows: another server leads the shared store, and this one keeps its copy of the store warm.
//!
//! ```text
//! request -> the leader's own checks (host, origin, rate, token, scope) -> history, probes, metrics: from the copy
//!                                                                       -> everything else: moved, to the leader's URL
//! ```
//!
//! The caller is checked first, so the leader's address is told only to callers that the leader would serve. There is
//! no bus, no CQRS loop and no writer here: nothing on a follower can commit. [`FollowedStore`] knows who leads, and
//! keeps the copy.
//!
//! Start with [`Follower::start`].

mod app;
mod dead_letters;
mod events;
mod followed;
mod lifecycle;
mod metrics;
mod routes;
mod socket;
mod status;
mod stored_topics;
mod topics;
mod ws;

pub(crate) use app::{FollowerApp, SharedFollower};
pub use followed::{FollowPhase, FollowStatus, FollowedStore, Unreachable};
pub use lifecycle::Follower;
