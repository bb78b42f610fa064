//! Deliberate bugs, chosen at run time by the simulator's tests to prove that its checkers find them.

use crate::router::Router;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// A late outcome answers a later request of the same id.
    IgnoreGeneration,
    /// The system lane admits messages without limit.
    StarveUsers,
    /// A timer fires after half its delay.
    FireEarly,
    /// The row of a timer is deleted when it fires, not when its work is done.
    ForgetRow,
    /// Requests of a client that has disconnected stay in the table of pending requests.
    KeepPending,
    /// A full mailbox takes one more.
    OverfillMailbox,
    /// Any cause that an actor names is accepted.
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
