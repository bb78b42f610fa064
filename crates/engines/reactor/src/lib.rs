//! The engine of `sys/loop`: the event loop of a zABI 2.5 guest, a single wait for everything that the guest waits for.
//!
//! A guest opens a loop, watches handles, arms timers, and blocks in one place: POLL. This crate holds the bookkeeping:
//! the frames of the protocol ([`zcl1`], [`messages`]), the handle table ([`HandleTable`]), watches, timers, and the
//! choice of the events that a POLL reports ([`SysLoop`]). "The reference" in comments is the reference host of zABI,
//! whose bytes are recorded in `tests/vectors/zcl1.json`.
//!
//! The engine makes no system calls and never waits; it has no clock, socket, file, thread or randomness: the shell
//! tells it the time in nanoseconds, and which handles are ready. The engine registers the handles that it wants
//! reports about through a small trait, [`Poller`].
//!
//! Start with [`SysLoop`]. The loop of a shell, for one `zi_write` of the guest:
//!
//! 1. [`SysLoop::write`] executes the requests in the bytes, and returns the result of `zi_write` or
//!    [`Written::Waiting`].
//! 2. While a POLL waits: ask the operating system what is ready, but not beyond [`SysLoop::next_deadline`]; hand the
//!    findings to [`SysLoop::observe`] (and states that capabilities compute to [`SysLoop::set_readiness`]); call
//!    [`SysLoop::resume`] with the time and the same bytes.
//! 3. [`SysLoop::read`] gives the guest its replies, one frame per `zi_read`.

pub mod messages;
pub mod zcl1;

mod counters;
mod error_code;
mod handles;
mod invariants;
mod limits;
mod poll;
mod poller;
mod readiness;
mod ready;
mod reports;
mod resync;
mod scripted;
mod slab;
mod sources;
mod stream;
mod sys_loop;
mod time;
mod timers;
mod watches;

pub use counters::{Counters, Gauges};
pub use error_code::ZabiError;
pub use handles::{FIRST_HANDLE, HandleLimits, HandleNumber, HandleTable, HandlesFull};
pub use invariants::Violation;
pub use limits::{LoopLimits, OUTPUT_BYTES_MIN};
pub use messages::{FirstDue, PollEvent, PollReply, PollTimeout, Request, RequestError, TimerId, WatchId};
pub use poll::polls_until_reported_max;
pub use poller::{Coverage, NotWatchable, Poller, Registration, SourceReport, SourceToken, Trigger};
pub use readiness::{OsReadiness, Readiness};
pub use scripted::{PollerCall, ScriptedPoller};
pub use stream::{ANSWER_BYTES_MAX, Written};
pub use sys_loop::SysLoop;
pub use time::{MS, MonoNs};
