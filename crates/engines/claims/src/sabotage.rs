//! Deliberate bugs, chosen at run time by the simulator's tests to prove that its checkers bite.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// Acks carry no proof of the lease.
    AckWithoutFence,
    /// A claim that comes back with its attempts used up is run again.
    NeverGiveUp,
    /// Emitted events are committed before the ack, apart from it.
    EmitBeforeAck,
    /// A retry appends the events of its commits again.
    ForgetSteps,
    /// A fire is not fenced by the schedule's row.
    FireWithoutFence,
    /// Retention does not wait for handlers.
    TrimUnfinished,
    /// Events that are given back before they start are charged an attempt.
    CountUnstarted,
    /// Suspects are started like any other event.
    TrustSuspects,
    /// Handlers in order of keys claim like all others.
    ForgetOrder,
}
