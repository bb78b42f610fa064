//! Every bound of the engine, with its default and the answer when it is reached.

#[derive(Clone, Debug)]
pub struct RunsLimits {
    /// Continuation steps in one tick, of all runs together; at least 1. Steps beyond it wait for the next tick, in
    /// their order.
    pub max_internal_steps_per_tick: usize,
    /// Runs that have not ended: [`crate::StartRefused::TooManyRuns`].
    pub runs_max: usize,
    /// External completions that wait for the next tick; at least 1: [`crate::InputRefused::ExternalQueueFull`]. Timers that are
    /// due stay in their queue until there is room.
    pub external_max: usize,
    /// Timers set and not fired, deadlines of runs included: [`crate::InputRefused::TooManyTimers`],
    /// [`crate::StartRefused::TooManyTimers`].
    pub timers_max: usize,
    /// The same of one run, its deadline not counted: [`crate::InputRefused::TooManyRunTimers`].
    pub run_timers_max: usize,
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<crate::Sabotage>,
}

impl RunsLimits {
    /// Without a step or a completion per tick nothing would ever end: 0 counts as 1 there.
    pub(crate) fn normalised(mut self) -> RunsLimits {
        self.max_internal_steps_per_tick = self.max_internal_steps_per_tick.max(1);
        self.external_max = self.external_max.max(1);
        self
    }
}

impl Default for RunsLimits {
    fn default() -> Self {
        RunsLimits {
            max_internal_steps_per_tick: 1024,
            runs_max: 1 << 20,
            external_max: 1 << 16,
            timers_max: 1 << 21,
            run_timers_max: 64,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}
