//! The host's data for one instance of a guest, and the measurement of the guest's computing time.

use std::time::Duration;

use millrace_zabi::Process;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Memory, Store, UpdateDeadline};

use super::limits::GuestLimits;
use crate::instance::Growth;

/// Why the host unwinds a guest's code: the error that wasmtime carries out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwound {
    #[error("the guest was stopped")]
    Stopped,
    #[error("the guest computes for too long")]
    StepTooLong,
}

pub(super) struct GuestState {
    pub(super) process: Process,
    /// The export `memory`, found by the first call that needs it.
    pub(super) memory: Option<Memory>,
    /// Counts the calls of the host: a guest that makes calls does not spin.
    pub(super) calls: u64,
    growth: Growth,
    step: StepClock,
}

/// Measures how long a guest computes without a call, in processor time of its thread: a guest that waits for a busy
/// machine does not spin. A call only increments a counter, which is cheaper than reading a clock: the step begins when
/// this clock first sees the new count, at most one epoch after the call.
struct StepClock {
    calls_seen: u64,
    began: Duration,
    max: Duration,
}

impl StepClock {
    fn is_over(&mut self, calls: u64, now: Duration) -> bool {
        if calls != self.calls_seen {
            (self.calls_seen, self.began) = (calls, now);
        }
        now.saturating_sub(self.began) > self.max
    }
}

/// Returns the processor time that the calling thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Returns a store whose code is unwound when its process is ended or a step takes too long. Called on the guest's
/// thread.
pub(super) fn store(engine: &wasmtime::Engine, process: Process, limits: &GuestLimits) -> Store<GuestState> {
    let state = GuestState {
        process,
        memory: None,
        calls: 0,
        growth: Growth::new(limits.memory_bytes_max, limits.table_elements_max),
        step: StepClock {
            calls_seen: 0,
            began: processor_time(),
            max: Duration::from_millis(limits.step_ms_max),
        },
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.growth);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut context| {
        let state = context.data_mut();
        if state.process.is_ended() {
            return Err(Unwound::Stopped.into());
        }
        match state.step.is_over(state.calls, processor_time()) {
            true => Err(Unwound::StepTooLong.into()),
            false => Ok(UpdateDeadline::Continue(1)),
        }
    });
    store
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_with_a_call() {
        let at = |ms: u64| Duration::from_millis(1000 + ms);
        let mut step = StepClock { calls_seen: 0, began: at(0), max: Duration::from_millis(50) };
        assert!(!step.is_over(0, at(50)));
        assert!(!step.is_over(1, at(60)), "a call began another step");
        assert!(!step.is_over(1, at(110)));
        assert!(step.is_over(1, at(111)));
    }
}
