//! A tick: due timers, then external completions, then steps up to the budget.

use std::sync::Arc;

use millrace_model::Mono;

use crate::effect::Effect;
use crate::error::RunError;
use crate::external::External;
use crate::guest::{Guest, GuestStep};
use crate::ids::{CallId, RunId};
use crate::input::Answer;
use crate::operation::ResumeKind;
use crate::outcome::RunOutcome;
use crate::run::{EffectRun, RunState};
use crate::runs::{Runs, waiting};
use crate::timers::TimerKind;

/// How a step ended: the guest asks for an effect, or the run has its outcome.
enum Stepped<G: Guest> {
    Request { op: u32, args: Vec<G::Value> },
    Ended(RunOutcome<G::Value, G::Fault>),
}

impl<G: Guest> Runs<G> {
    /// Begins a tick: moves due timers into the external queue and the external queue into the ready queue, and refills
    /// the budget. [`Runs::step`] does the rest of the tick.
    pub fn tick(&mut self, now: Mono) {
        self.see(now);
        self.counters.ticks += 1;
        self.budget = self.limits.max_internal_steps_per_tick;
        self.collect_due_timers();
        if let Some(shuffle) = &mut self.shuffle {
            self.external.shuffle(shuffle);
        }
        while let Some(external) = self.external.pop() {
            if !self.admit(external) {
                self.counters.externals_dropped += 1;
            }
        }
    }

    /// Executes the next continuation step of this tick. Returns false if there is none: the budget is used up, or no
    /// run is ready.
    ///
    /// The ready queue is first in, first out, and a run that becomes ready again joins its end: no run has a second
    /// step before every run that was ready has had its own.
    pub fn step(&mut self, host: &mut G::Host) -> bool {
        if self.budget == 0 {
            return false;
        }
        let Some(id) = self.pop_ready() else { return false };
        self.budget -= 1;
        self.counters.steps += 1;
        let Some(run) = self.table.get_mut(id) else { return false };
        match run.advance(host) {
            Stepped::Request { op, args } => {
                run.step += 1;
                run.state = RunState::Waiting { op };
                let call = run.call();
                self.effects.push_back(Effect::Call { call, op, args });
            }
            Stepped::Ended(outcome) => {
                self.finish(id, outcome);
            }
        }
        true
    }

    pub(crate) fn push_ready(&mut self, id: RunId) {
        self.ready_runs += 1;
        self.ready.push_back(id);
    }

    fn pop_ready(&mut self) -> Option<RunId> {
        loop {
            let id = self.ready.pop_front()?;
            if self.table.get(id).is_some() {
                self.ready_runs -= 1;
                return Some(id);
            }
        }
    }

    fn collect_due_timers(&mut self) {
        while self.external.len() < self.limits.external_max {
            let Some((key, timer)) = self.timers.pop_due(self.now) else { return };
            self.counters.timers_fired += 1;
            if let Some(run) = self.table.get_mut(timer.call.run) {
                match (timer.kind, &mut run.state) {
                    (TimerKind::Answer, RunState::Answered { timer, .. }) => *timer = None,
                    (TimerKind::Answer, _) => {}
                    (TimerKind::Wake { .. }, _) => run.wakes.retain(|wake| *wake != key),
                    (TimerKind::Deadline, _) => run.deadline = None,
                }
            }
            self.external.push(External { at: key.at, call: timer.call, kind: timer.kind });
        }
    }

    /// Applies one external completion or timer. Returns false if the run has ended meanwhile, or the call no longer
    /// waits.
    fn admit(&mut self, external: External) -> bool {
        let External { at, call, kind } = external;
        match kind {
            TimerKind::Answer => self.admit_answer(call),
            TimerKind::Wake { token } => {
                let waits = waiting(&mut self.table, call).is_some();
                if waits {
                    self.effects.push_back(Effect::Woke { call, token });
                }
                waits
            }
            TimerKind::Deadline => {
                let active = self.table.get(call.run).is_some();
                if active {
                    self.fail(call.run, RunError::TimedOut { deadline_ms: at.0 });
                }
                active
            }
        }
    }

    fn admit_answer(&mut self, call: CallId) -> bool {
        let Some(run) = self.table.get_mut(call.run).filter(|run| run.step == call.step) else {
            return false;
        };
        match std::mem::replace(&mut run.state, RunState::Stepping) {
            RunState::Answered { op, answer, .. } => {
                run.state = RunState::Ready { op, answer };
                self.push_ready(call.run);
                true
            }
            other => {
                run.state = other;
                false
            }
        }
    }

    fn fail(&mut self, id: RunId, error: RunError<G::Fault>) {
        self.finish(id, RunOutcome::Failed(Arc::new(error)));
    }
}

impl<G: Guest> EffectRun<G> {
    fn advance(&mut self, host: &mut G::Host) -> Stepped<G> {
        let stepped = match std::mem::replace(&mut self.state, RunState::Stepping) {
            RunState::Starting => self.guest.start(host),
            RunState::Ready { op, answer } => match self.reply(op, answer) {
                Ok(reply) => self.guest.resume(host, reply),
                Err(outcome) => return Stepped::Ended(outcome),
            },
            // The ready queue holds only runs in one of the two states above.
            other => {
                self.state = other;
                return failed(RunError::NotReady);
            }
        };
        match stepped {
            GuestStep::Done(value) => Stepped::Ended(RunOutcome::Value(value)),
            GuestStep::Failed(fault) => failed(RunError::Guest(fault)),
            GuestStep::Request { op, args } => match self.operations.get(op as usize) {
                Some(_) => Stepped::Request { op, args },
                None => failed(RunError::UnknownOperation { op, count: self.operations.len() }),
            },
        }
    }

    /// Returns the value to resume the guest with, or as an error the outcome of the run, if the answer ends it.
    fn reply(&self, op: u32, answer: Answer<G::Value>) -> Result<G::Value, RunOutcome<G::Value, G::Fault>> {
        let Some(operation) = self.operations.get(op as usize) else {
            let error = RunError::UnknownOperation { op, count: self.operations.len() };
            return Err(RunOutcome::Failed(Arc::new(error)));
        };
        let (label, kind) = (&operation.label, operation.kind);
        let error = match (answer, kind) {
            (Answer::Resume(value), ResumeKind::Resume) | (Answer::Tail(value), ResumeKind::Tail) => {
                return Ok(value);
            }
            (Answer::End(value), ResumeKind::Resume) => return Err(RunOutcome::Value(value)),
            (Answer::Tail(_), ResumeKind::Resume) => RunError::ResumeGotTail { label: label.clone() },
            (Answer::Resume(_) | Answer::End(_), ResumeKind::Tail) => {
                RunError::TailGotOther { label: label.clone() }
            }
            (Answer::Failed(error), _) => RunError::Handler { label: label.clone(), error },
            (Answer::Unhandled, kind) => RunError::Unhandled { label: label.clone(), kind },
            (Answer::NotAContinuation, _) => RunError::NotAContinuation { label: label.clone() },
        };
        Err(RunOutcome::Failed(Arc::new(error)))
    }
}

fn failed<G: Guest>(error: RunError<G::Fault>) -> Stepped<G> {
    Stepped::Ended(RunOutcome::Failed(Arc::new(error)))
}
