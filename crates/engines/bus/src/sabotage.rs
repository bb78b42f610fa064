//! Deliberate bugs, chosen at run time by the simulator's tests to prove that its checkers bite.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// PUBLISHED leaves before the commit is confirmed.
    AnswerBeforeCommit,
    /// A cumulative ack also completes what other members hold.
    CommitPassesHole,
    /// A cumulative ack also completes lower events that its connection received after the acked one.
    AckCompletesLaterDelivery,
    /// Sticky groups send events of one key at once.
    ForgetKeys,
    /// All events that a lost connection held count as attempts.
    BlameAll,
    /// A closed connection keeps what it held.
    KeepLeasesOfClosed,
    IgnoreWindow,
    /// An event goes to two members at once.
    DoubleLease,
    /// The dead letter's copy and the group's completion are two commits, the completion first.
    DeadLetterApart,
    /// Attempts start at two.
    CountTooHigh,
    /// The room that an ack makes is not used.
    NoWakeOnAck,
    /// The newest events of every commit are never offered to groups.
    LoseTail,
    /// Events that join a topic while a new schema is compared with what is there are not compared with it.
    SlipPastSchema,
    /// Retention removes by age without asking whether the wall clock can be trusted.
    TrustEveryAge,
    /// Delays are counted on the wall clock.
    DelayByWall,
    /// Every step of the wall clock is taken over at once, also by the simulated shell.
    BelieveEveryStep,
}
