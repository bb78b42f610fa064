//! Every limit of the engine, with its default and what happens when it is reached.

#[derive(Clone, Debug)]
pub struct RunsLimits {
    /// Continuation steps in one tick, of all runs together; at least 1. Further steps wait for the next tick, in their
    /// order.
    pub max_internal_steps_per_tick: usize,
    /// Runs that have not ended. Beyond it: [`crate::StartRefused::TooManyRuns`].
    pub runs_max: usize,
    /// External completions that wait for the next tick; at least 1. Beyond it:
    /// [`crate::InputRefused::ExternalQueueFull`]. Due timers stay in their queue until there is room.
    pub external_max: usize,
    /// Timers that are set and have not fired, including the deadlines of runs. Beyond it:
    /// [`crate::InputRefused::TooManyTimers`], [`crate::StartRefused::TooManyTimers`].
    pub timers_max: usize,
    /// Wake-ups ([`crate::Input::WakeAt`]) of one run. Beyond it: [`crate::InputRefused::TooManyRunTimers`].
    pub run_timers_max: usize,
}

impl RunsLimits {
    /// Raises limits of 0 to 1 where no run would ever end otherwise: steps per tick and external completions.
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
        }
    }
}
