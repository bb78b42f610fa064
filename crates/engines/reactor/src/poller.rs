//! The trait for sources of readiness: the operating system's poller, and capabilities that compute the readiness of
//! their handles.
//!
//! The loop tells the poller which handles it is interested in; the shell tells the loop what is ready
//! ([`crate::SysLoop::observe`], [`crate::SysLoop::set_readiness`]). [`crate::ScriptedPoller`] is the implementation
//! for tests; the one over epoll and kqueue belongs to the shell.

use thiserror::Error;

use crate::handles::HandleNumber;
use crate::readiness::Readiness;
use crate::slab::SlabKey;

/// Identifies one registration of a handle. A token is reused only after 2^32 registrations in the same slot, so a late
/// report about a handle that is no longer watched is recognised and dropped. Fits the 64-bit keys of epoll and kqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceToken(pub u64);

/// Where the readiness of a handle comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The operating system: the handle is reported in rounds ([`Coverage`]), level-triggered.
    Polled,
    /// A capability: `now` is the handle's state, and [`crate::SysLoop::set_readiness`] tells each change.
    Computed { now: Readiness },
}

/// When the operating system reports a handle again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// In every round, as long as the handle is ready.
    Level,
    /// Once after each change of the handle's state (`EPOLLET`, `EV_CLEAR`). For a handle in a state that no watch asks
    /// for, which would otherwise end every wait at once.
    Edge,
}

/// The handle does not exist, is of a kind that cannot be watched, or the operating system refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the handle cannot be watched")]
pub struct NotWatchable;

/// Where a loop registers handles: each handle once, with the combined interest of its watches.
pub trait Poller {
    /// Begins to report a handle, level-triggered. Hup and error are reported whether or not `interest` has them. A
    /// poller that cannot report exactly these states may report others too, once after each change of the
    /// registration.
    ///
    /// # Errors
    ///
    /// [`NotWatchable`]: the handle is not registered.
    fn register(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
    ) -> Result<Registration, NotWatchable>;

    /// Replaces the interest of a registered handle. The next round reports the handle if it is ready, whatever the
    /// trigger. For handles with computed readiness the trigger is always `Trigger::Level`.
    ///
    /// # Errors
    ///
    /// [`NotWatchable`]: the previous registration stays in force.
    fn modify(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
        trigger: Trigger,
    ) -> Result<(), NotWatchable>;

    /// Stops reporting a handle. Called while the handle is still open, or when it has just ended.
    fn deregister(&mut self, handle: HandleNumber, token: SourceToken);
}

/// An entry of a round: the operating system found the handle in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceReport {
    pub token: SourceToken,
    pub state: Readiness,
}

/// Whether a round reported every polled handle that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The poller had room for more reports: a polled handle that is not among them is not ready.
    All,
    /// The poller's buffer was full: nothing is known about handles that are not among the reports.
    Partial,
}

impl SourceToken {
    pub(crate) fn of(key: SlabKey) -> SourceToken {
        SourceToken(u64::from(key.generation) << 32 | u64::from(key.slot))
    }

    pub(crate) fn key(self) -> SlabKey {
        SlabKey { generation: (self.0 >> 32) as u32, slot: self.0 as u32 }
    }
}
