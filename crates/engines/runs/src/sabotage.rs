//! Deliberate bugs, chosen at run time by the simulator's tests to prove that its checkers find them.

use crate::guest::Guest;
use crate::runs::Runs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// An answer to an earlier request of a run answers the current one.
    AnyStep,
    /// Timers fire before they are due.
    WakeEarly,
    /// A run that becomes ready goes to the front of the queue.
    PushFront,
    /// A run that ends leaves its timers in the queue.
    KeepTimers,
    /// A tick executes up to ten times its budget of steps.
    IgnoreBudget,
    /// A run that is ready cannot be cancelled.
    IgnoreCancel,
    /// The guest of a cancelled run is not released.
    ForgetRelease,
}

impl<G: Guest> Runs<G> {
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotaged(&self, by: Sabotage) -> bool {
        self.limits.sabotage == Some(by)
    }

    #[cfg(not(feature = "sabotage"))]
    pub(crate) fn sabotaged(&self, _by: Sabotage) -> bool {
        false
    }
}
