//! The engine's public interface: start runs, feed inputs, tick and step, take effects.

use std::collections::VecDeque;

use millrace_model::Mono;

use crate::counters::{Counters, Gauges};
use crate::effect::Effect;
use crate::error::{InputRefused, NotStarted, StartRefused};
use crate::external::{External, ExternalQueue};
use crate::guest::Guest;
use crate::ids::{CallId, RunId};
use crate::input::{Answer, Disposition, Input, NewRun};
use crate::limits::RunsLimits;
use crate::outcome::RunOutcome;
use crate::run::{EffectRun, RunState};
use crate::shuffle::Shuffle;
use crate::table::RunTable;
use crate::timers::{RunTimer, RunTimers, TimerKey, TimerKind};

/// See the crate's documentation.
#[derive(Debug)]
pub struct Runs<G: Guest> {
    pub(crate) limits: RunsLimits,
    pub(crate) table: RunTable<G>,
    /// First in, first out. Entries of runs that have ended are skipped; `ready_runs` counts the others.
    pub(crate) ready: VecDeque<RunId>,
    pub(crate) ready_runs: usize,
    pub(crate) external: ExternalQueue,
    pub(crate) timers: RunTimers,
    /// Steps that this tick may still execute.
    pub(crate) budget: usize,
    /// The latest time the engine was given: its time never goes back.
    pub(crate) now: Mono,
    pub(crate) shuffle: Option<Shuffle>,
    pub(crate) effects: VecDeque<Effect<G>>,
    pub(crate) counters: Counters,
}

impl<G: Guest> Runs<G> {
    pub fn new(limits: RunsLimits) -> Runs<G> {
        Runs {
            limits: limits.normalised(),
            table: RunTable::new(),
            ready: VecDeque::new(),
            ready_runs: 0,
            external: ExternalQueue::default(),
            timers: RunTimers::default(),
            budget: 0,
            now: Mono(0),
            shuffle: None,
            effects: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Lets external completions with equal times enter the ready queue in an order derived from `seed`, instead of
    /// first in, first out. For tests that look for code that depends on that order.
    pub fn shuffled(mut self, seed: u64) -> Runs<G> {
        self.shuffle = Some(Shuffle::new(seed));
        self
    }

    /// Adds a run. Its entry is called in a step of the next tick, or of the current tick if the budget is not used up.
    ///
    /// # Errors
    ///
    /// [`NotStarted`] with the guest if a limit is reached.
    pub fn start(&mut self, now: Mono, start: NewRun<G>) -> Result<RunId, NotStarted<G>> {
        self.see(now);
        let NewRun { guest, operations, deadline } = start;
        let max = self.limits.runs_max.min(u32::MAX as usize);
        if self.table.len() >= max {
            return Err(NotStarted { refused: StartRefused::TooManyRuns { max }, guest });
        }
        let max = self.limits.timers_max;
        if deadline.is_some() && self.timers.len() >= max {
            return Err(NotStarted { refused: StartRefused::TooManyTimers { max }, guest });
        }
        let timers = &mut self.timers;
        let id = self.table.insert(|id| {
            let call = CallId { run: id, step: 0 };
            let deadline = deadline.map(|at| timers.set(at, RunTimer { call, kind: TimerKind::Deadline }));
            EffectRun {
                id,
                guest,
                operations,
                step: 0,
                state: RunState::Starting,
                wakes: Vec::new(),
                deadline,
            }
        });
        self.counters.started += 1;
        self.push_ready(id);
        Ok(id)
    }

    /// Handles one input. Answers are applied by a later [`Runs::step`], not here; cancellation takes effect at once.
    ///
    /// # Errors
    ///
    /// [`InputRefused`] if a limit is reached; nothing has changed then. Cancellation and [`Input::Answered`] are never
    /// refused.
    pub fn handle(&mut self, now: Mono, input: Input<G::Value>) -> Result<Disposition, InputRefused> {
        self.see(now);
        let disposition = match input {
            Input::Answered { call, answer } => self.answered(call, answer),
            Input::Completed { call, answer } => self.completed(call, answer)?,
            Input::AnswerAt { call, at, answer } => self.answer_at(call, at, answer)?,
            Input::WakeAt { call, at, token } => self.wake_at(call, at, token)?,
            Input::Cancel { run, reason } => self.cancel(run, reason),
        };
        if disposition == Disposition::Dropped {
            self.counters.inputs_dropped += 1;
        }
        Ok(disposition)
    }

    /// Returns the next effect to carry out. Take all of them after each input, tick and step: there are at most four
    /// for each run that ended, and one for each step and wake-up.
    pub fn next_effect(&mut self) -> Option<Effect<G>> {
        self.effects.pop_front()
    }

    /// Returns when the next tick is due: at once if a step can execute or a completion waits, else when the first
    /// timer is due. `None`: not before the next input.
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.ready_runs > 0 || self.external.len() > 0 {
            return Some(self.now);
        }
        self.timers.first()
    }

    /// Runs that have not ended, in the order of their slots: a fixed order, but not that of their start.
    pub fn active(&self) -> impl Iterator<Item = RunId> + '_ {
        self.table.iter().map(|run| run.id)
    }

    pub fn is_active(&self, run: RunId) -> bool {
        self.table.get(run).is_some()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            runs: self.table.len(),
            ready: self.ready_runs,
            external: self.external.len(),
            timers: self.timers.len(),
        }
    }

    fn cancel(&mut self, id: RunId, reason: Option<G::Value>) -> Disposition {
        self.finish(id, RunOutcome::Cancelled { reason })
    }

    fn answered(&mut self, call: CallId, answer: Answer<G::Value>) -> Disposition {
        let Some((run, op)) = waiting(&mut self.table, call) else { return Disposition::Dropped };
        run.state = RunState::Ready { op, answer };
        clear_wakes(run, &mut self.timers);
        self.push_ready(call.run);
        Disposition::Accepted
    }

    fn completed(&mut self, call: CallId, answer: Answer<G::Value>) -> Result<Disposition, InputRefused> {
        let Some((run, op)) = waiting(&mut self.table, call) else { return Ok(Disposition::Dropped) };
        let max = self.limits.external_max;
        if self.external.len() >= max {
            return Err(InputRefused::ExternalQueueFull { max });
        }
        run.state = RunState::Answered { op, answer, timer: None };
        clear_wakes(run, &mut self.timers);
        self.external.push(External { at: self.now, call, kind: TimerKind::Answer });
        Ok(Disposition::Accepted)
    }

    fn answer_at(
        &mut self,
        call: CallId,
        at: Mono,
        answer: Answer<G::Value>,
    ) -> Result<Disposition, InputRefused> {
        let Some((run, op)) = waiting(&mut self.table, call) else { return Ok(Disposition::Dropped) };
        let max = self.limits.timers_max;
        if self.timers.len() >= max {
            return Err(InputRefused::TooManyTimers { max });
        }
        let timer = self.timers.set(at, RunTimer { call, kind: TimerKind::Answer });
        run.state = RunState::Answered { op, answer, timer: Some(timer) };
        clear_wakes(run, &mut self.timers);
        Ok(Disposition::Accepted)
    }

    fn wake_at(&mut self, call: CallId, at: Mono, token: u64) -> Result<Disposition, InputRefused> {
        let Some((run, _)) = waiting(&mut self.table, call) else { return Ok(Disposition::Dropped) };
        let max = self.limits.timers_max;
        if self.timers.len() >= max {
            return Err(InputRefused::TooManyTimers { max });
        }
        let max = self.limits.run_timers_max;
        if run.wakes.len() >= max {
            return Err(InputRefused::TooManyRunTimers { max });
        }
        run.wakes.push(self.timers.set(at, RunTimer { call, kind: TimerKind::Wake { token } }));
        Ok(Disposition::Accepted)
    }

    /// Callers read their clocks at different moments; the engine uses the latest time.
    pub(crate) fn see(&mut self, now: Mono) {
        self.now = self.now.max(now);
    }
}

/// Returns the run of this call and the call's operation, if the call still waits for its answer.
pub(crate) fn waiting<G: Guest>(table: &mut RunTable<G>, call: CallId) -> Option<(&mut EffectRun<G>, u32)> {
    let run = table.get_mut(call.run).filter(|run| run.step == call.step)?;
    match run.state {
        RunState::Waiting { op } => Some((run, op)),
        _ => None,
    }
}

fn clear_wakes<G: Guest>(run: &mut EffectRun<G>, timers: &mut RunTimers) {
    run.wakes.drain(..).for_each(|key: TimerKey| timers.cancel(key));
}
