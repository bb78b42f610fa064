//! Deliberate bugs, chosen at run time by the simulator's tests to prove that its checkers find them.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// Acknowledgements do not check the lease.
    AckWithoutFence,
    /// An event whose attempts are used up is run again when its claim comes back.
    NeverGiveUp,
    /// Emitted events are committed before the acknowledgement, in a batch of their own.
    EmitBeforeAck,
    /// A retry appends the events of its commits again.
    ForgetSteps,
    /// A fire does not check the schedule's row.
    FireWithoutFence,
    /// Retention does not wait for handlers.
    TrimUnfinished,
    /// Events that are given back before they start are charged an attempt.
    CountUnstarted,
    /// Events under suspicion are started like any others.
    TrustSuspects,
    /// Handlers in order of keys claim events like all others.
    ForgetOrder,
}
