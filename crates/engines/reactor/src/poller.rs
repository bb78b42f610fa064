//! The port to whoever knows readiness: the operating system's poller, and capabilities that compute theirs.
//!
//! The loop tells the poller in which handles it is interested; the shell tells the loop what is ready
//! ([`crate::SysLoop::observe`], [`crate::SysLoop::set_readiness`]). [`crate::ScriptedPoller`] is the implementation for
//! tests; the one over epoll and kqueue belongs to the shell.

use thiserror::Error;

use crate::handles::HandleNumber;
use crate::readiness::Readiness;
use crate::slab::SlabKey;

/// Names one registration of a handle. Each has its own token (a slot's 2^32 registrations apart), so a late report about
/// a handle that is no longer watched is recognised and dropped. Fits the 64-bit keys of epoll and kqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceToken(pub u64);

/// Who knows the readiness of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The operating system: the handle is reported in rounds ([`Coverage`]), level-triggered.
    Polled,
    /// A capability: `now` is the handle's state, and each change is told with [`crate::SysLoop::set_readiness`].
    Computed { now: Readiness },
}

/// When the operating system reports a handle again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// In every round, as long as it is ready.
    Level,
    /// Once after each change of its state (`EPOLLET`, `EV_CLEAR`). For a handle in a state that no watch asks for, which
    /// would otherwise end every wait at once.
    Edge,
}

/// The handle does not exist, is of a kind that cannot be watched, or the operating system refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the handle cannot be watched")]
pub struct NotWatchable;

/// A loop registers a handle once, with everything that its watches on the handle ask for.
pub trait Poller {
    /// Begins to report a handle, level-triggered. Hup and error are reported whether `interest` has them or not. A poller
    /// that cannot be asked for exactly this may report other states too, once after each change of the registration.
    ///
    /// # Errors
    ///
    /// [`NotWatchable`]; the handle is not registered then.
    fn register(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
    ) -> Result<Registration, NotWatchable>;

    /// Replaces the interest of a registered handle. The next round reports the handle if it is ready, whatever the
    /// trigger. Handles of computed readiness are always told `Trigger::Level`.
    ///
    /// # Errors
    ///
    /// [`NotWatchable`]; the registration is the one before then.
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

/// One line of a round: the operating system found this handle in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub token: SourceToken,
    pub state: Readiness,
}

/// Whether a round named every polled handle that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The poller had room for more reports: a polled handle that is not named is not ready.
    All,
    /// The poller's buffer was full: nothing is known about handles that are not named.
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
