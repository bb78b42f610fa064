//! The engine's outer shape: its state, the verbs of the loop, and the table that forwards each input.

use millrace_model::{Mono, Now};

use crate::config::WorkerConfig;
use crate::effect::Effect;
use crate::error::SpecError;
use crate::input::Input;
use crate::spec::{HandlerSpec, ScheduleSpec, WorkerIdentity};

/// One session's worker. Owned by one loop:
///
/// ```text
/// worker.handle(now, input)           // Input::Tick when the deadline has come, and once at the beginning
/// for effect in worker.drain() { ... }
/// wait until worker.next_deadline() or the next input
/// ```
#[derive(Debug)]
pub struct Worker {
    effects: Vec<Effect>,
}

impl Worker {
    /// `seed` is drawn at random: jitter and the nonces of batches come from it.
    pub fn new(
        _config: WorkerConfig,
        _identity: WorkerIdentity,
        _handlers: Vec<HandlerSpec>,
        _schedules: Vec<ScheduleSpec>,
        _seed: u64,
    ) -> Result<Worker, SpecError> {
        Ok(Worker { effects: Vec::new() })
    }

    /// Takes one input. Effects gather until they are drained.
    pub fn handle(&mut self, _now: Now, _input: Input) {}

    pub fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When [`Input::Tick`] must be given at the latest; `None` = not before the next input.
    pub fn next_deadline(&self) -> Option<Mono> {
        None
    }

    /// Nothing runs, nothing is on its way, and the last look at every handler's events found nothing to do now.
    pub fn is_idle(&self) -> bool {
        true
    }
}
