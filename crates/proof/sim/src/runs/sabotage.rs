//! Deliberate bugs of effect runs, to prove that the checkers find them. The engine itself stays correct: a bug is made
//! by changing its limits, its inputs on their way in, and its effects on their way out. The checkers see the true
//! inputs and the changed effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_model::Mono;
use millrace_runs::{
    CallId, Disposition, Effect, Input, InputRefused, RunId, RunOutcome, Runs, RunsLimits, ScriptLine,
    ScriptedGuest,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// An answer to an earlier request of a run answers the current one.
    AnyStep,
    /// Timers fire before they are due.
    WakeEarly,
    /// Of the runs that become ready in a tick, the last one has its next step first.
    PushFront,
    /// A run that is cancelled while it waits for a timer stays in the engine.
    KeepTimers,
    /// A tick executes up to ten times its budget of steps.
    IgnoreBudget,
    /// A run that is not waiting for an answer cannot be cancelled.
    IgnoreCancel,
    /// The guest of a cancelled run is not released.
    ForgetRelease,
}

/// How much too early timers fire.
const EARLY_MS: u64 = 5;

type Engine = Runs<ScriptedGuest<i64>>;

/// Stands between the engine and its world. Without a sabotage nothing is changed.
#[derive(Debug, Default)]
pub(super) struct Saboteur {
    sabotage: Option<Sabotage>,
    /// The current call of each run that has made one.
    current: BTreeMap<RunId, CallId>,
    /// Runs whose current call has no answer; and of these, the ones that have set a timer.
    waiting: BTreeSet<RunId>,
    asleep: BTreeSet<RunId>,
    cancelled: BTreeSet<RunId>,
    /// Answers that the engine gets at the end of the tick.
    held: Vec<Input<i64>>,
    /// Runs that have ended for the world, but not for the engine.
    kept: BTreeSet<RunId>,
    /// Effects that the engine did not make.
    own: VecDeque<Effect<ScriptedGuest<i64>>>,
}

impl Saboteur {
    pub(super) fn new(sabotage: Option<Sabotage>) -> Saboteur {
        Saboteur { sabotage, ..Saboteur::default() }
    }

    /// Returns the limits that the engine gets instead of those of the world, which the checkers use.
    pub(super) fn limits(sabotage: Option<Sabotage>, mut limits: RunsLimits) -> RunsLimits {
        if sabotage == Some(Sabotage::IgnoreBudget) {
            limits.max_internal_steps_per_tick *= 10;
        }
        limits
    }

    /// Returns when the engine is told that a timer is due.
    pub(super) fn due(&self, at: Mono) -> Mono {
        match self.sabotage {
            Some(Sabotage::WakeEarly) => Mono(at.0.saturating_sub(EARLY_MS)),
            _ => at,
        }
    }

    /// Hands an input to the engine, or another one, or none. Returns what the world is told about it.
    pub(super) fn handle(
        &mut self,
        runs: &mut Engine,
        now: Mono,
        mut input: Input<i64>,
    ) -> Result<Disposition, InputRefused> {
        let Some(sabotage) = self.sabotage else { return runs.handle(now, input) };
        match &mut input {
            Input::Completed { call, .. } if sabotage == Sabotage::AnyStep => {
                *call = self.current.get(&call.run).copied().unwrap_or(*call);
            }
            Input::AnswerAt { at, .. } | Input::WakeAt { at, .. } => *at = self.due(*at),
            Input::Answered { call, .. } if sabotage == Sabotage::PushFront => {
                if !self.waiting.remove(&call.run) {
                    return Ok(Disposition::Dropped);
                }
                self.held.push(input);
                return Ok(Disposition::Accepted);
            }
            Input::Cancel { run, .. } => {
                if let Some(disposition) = self.cancel(sabotage, runs, *run) {
                    return Ok(disposition);
                }
            }
            _ => {}
        }
        let (run, is_wake) = match &input {
            Input::Answered { call, .. } | Input::Completed { call, .. } | Input::AnswerAt { call, .. } => {
                (call.run, false)
            }
            Input::WakeAt { call, .. } => (call.run, true),
            Input::Cancel { run, .. } => (*run, false),
        };
        if self.kept.contains(&run) {
            return Ok(Disposition::Dropped);
        }
        let disposition = runs.handle(now, input)?;
        match (disposition, is_wake) {
            (Disposition::Accepted, true) => drop(self.asleep.insert(run)),
            (Disposition::Accepted, false) => self.no_longer_waits(run),
            (Disposition::Dropped, _) => {}
        }
        Ok(disposition)
    }

    /// Returns the answer to a cancellation, if the engine is not to hear of it.
    fn cancel(&mut self, sabotage: Sabotage, runs: &Engine, run: RunId) -> Option<Disposition> {
        match sabotage {
            Sabotage::ForgetRelease => {
                self.cancelled.insert(run);
                None
            }
            Sabotage::IgnoreCancel if runs.is_active(run) && !self.waiting.contains(&run) => {
                Some(Disposition::Dropped)
            }
            Sabotage::KeepTimers if self.asleep.contains(&run) => {
                self.no_longer_waits(run);
                self.kept.insert(run);
                let guest = ScriptedGuest::new(0, Vec::<ScriptLine<i64>>::new());
                self.own.push_back(Effect::Release { run, guest });
                self.own.push_back(Effect::Outcome { run, outcome: RunOutcome::Cancelled { reason: None } });
                Some(Disposition::Accepted)
            }
            _ => None,
        }
    }

    fn no_longer_waits(&mut self, run: RunId) {
        self.waiting.remove(&run);
        self.asleep.remove(&run);
    }

    /// Returns the next effect for the world to carry out.
    pub(super) fn next_effect(&mut self, runs: &mut Engine) -> Option<Effect<ScriptedGuest<i64>>> {
        while let Some(effect) = runs.next_effect() {
            if self.passes(&effect) {
                return Some(effect);
            }
        }
        self.own.pop_front()
    }

    fn passes(&mut self, effect: &Effect<ScriptedGuest<i64>>) -> bool {
        let run = match effect {
            Effect::Call { call, .. } => {
                self.current.insert(call.run, *call);
                self.waiting.insert(call.run);
                call.run
            }
            Effect::Woke { call, .. } => {
                self.asleep.remove(&call.run);
                call.run
            }
            Effect::Abandon { call } => call.run,
            Effect::Release { run, .. } if self.cancelled.contains(run) => return false,
            Effect::Outcome { run, .. } => {
                self.no_longer_waits(*run);
                *run
            }
            Effect::Release { run, .. } | Effect::Failure { run, .. } => *run,
        };
        !self.kept.contains(&run)
    }

    /// The tick has executed its last step: answers that were held go to the engine, the newest first.
    pub(super) fn tick_ends(&mut self, runs: &mut Engine, now: Mono) {
        while let Some(input) = self.held.pop() {
            // Refused or dropped only if the run has ended meanwhile.
            let _ = runs.handle(now, input);
        }
    }
}
