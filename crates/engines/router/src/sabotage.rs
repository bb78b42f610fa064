//! Deliberate bugs, chosen at run time by the simulator's tests to prove that its checkers bite.

use crate::router::Router;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// A late outcome answers a later request of the same id.
    IgnoreGeneration,
    /// The system lane lets everybody in.
    StarveUsers,
    /// Half the delay is enough.
    FireEarly,
    /// The row of a timer goes when it fires, not when its work is done.
    ForgetRow,
    /// Who hung up stays on the books.
    KeepPending,
    /// A full mailbox takes one more.
    OverfillMailbox,
    /// Whatever an actor names as a cause is one.
    BelieveCauses,
}

impl Router {
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotaged(&self, by: Sabotage) -> bool {
        self.limits.sabotage == Some(by)
    }

    #[cfg(not(feature = "sabotage"))]
    pub(crate) fn sabotaged(&self, _by: Sabotage) -> bool {
        false
    }
}
