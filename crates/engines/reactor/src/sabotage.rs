//! Deliberate bugs, chosen at run time by the simulator's tests to prove that its checkers find them.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Sabotage {
    /// Every POLL looks for ready watches from the lowest slot on.
    FirstWatchFirst,
    /// Watches take every slot of a reply that they can fill.
    WatchesBeforeTimers,
    /// A timer is delivered one nanosecond before it is due.
    FireEarly,
    /// A repeating timer that missed a period is dropped.
    DropCoalesced,
    /// The next due time of a repeating timer is its delivery plus the interval.
    DriftFromGrid,
    /// `more` is set whenever the reply is full.
    MoreWhenFull,
    /// A watch stays on the number of a handle that has ended.
    KeepEndedHandle,
    /// A new watch on a number drops the watches of the ended handles that had it.
    ForgetWatchOnReuse,
    /// A POLL is executed although its answer has no room.
    PollWhenFull,
    /// Bytes after a truncated frame are always taken for the rest of it.
    NeverStartOver,
    /// A handle that is ready in a way that no watch asks for stays level-triggered.
    NeverEdge,
    /// A handle that is edge-triggered stays so, although a watch asks for its state.
    NeverLevelAgain,
    /// A one-shot is armed again, a millisecond later.
    OneShotTwice,
    /// Of timers with equal due times, the one that was armed last fires first.
    LatestArmedFirst,
    /// The time at which the next timer is due is missing from `next_deadline`.
    SleepThroughTimers,
    /// A reply may have one event more than the guest has room for.
    OneEventTooMany,
}

/// The deliberate bug of one loop: none, unless the feature is on and the limits name one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chosen {
    #[cfg(feature = "sabotage")]
    pub(crate) by: Option<Sabotage>,
}

impl Chosen {
    #[cfg(feature = "sabotage")]
    pub(crate) fn is(self, by: Sabotage) -> bool {
        self.by == Some(by)
    }

    #[cfg(not(feature = "sabotage"))]
    pub(crate) fn is(self, _by: Sabotage) -> bool {
        false
    }
}
