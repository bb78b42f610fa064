//! The knowledge of the world of effect runs about its runs, gained without looking into the engine, and the invariants
//! that must hold.

use std::collections::BTreeMap;

use millrace_model::Mono;
use millrace_runs::{
    Answer, CallId, Disposition, Gauges, GuestEvent, HandlerError, RunError, RunId, RunOutcome, ScriptFault,
};

use super::handler::TELL;
use crate::check::Violation;
use crate::dice::Dice;

pub(crate) const INVARIANTS: [&str; 13] = [
    "one_outcome",
    "every_run_ends",
    "outcome_is_true",
    "released_once",
    "one_call_at_a_time",
    "right_reply",
    "late_dropped",
    "answers_taken",
    "turns_taken",
    "budget_kept",
    "timer_never_early",
    "timers_in_order",
    "engine_consistent",
];

pub(super) fn violation(invariant: &'static str, detail: String) -> Violation {
    Violation { invariant, detail }
}

pub(super) struct Record {
    runs: BTreeMap<RunId, Life>,
    names: BTreeMap<u64, RunId>,
    /// Every answer carries a number of its own, so a reply tells which answer it is.
    tickets: i64,
    /// When each wake-up is due.
    wakes: BTreeMap<u64, Mono>,
    last_wake: Option<(Mono, u64)>,
    is_shuffled: bool,
    steps: u64,
}

struct Life {
    deadline: Option<Mono>,
    call: Option<(CallId, u32)>,
    answer: Option<Sent>,
    /// The step of the world by which this run must have taken its own.
    ready_by: Option<u64>,
    is_cancelled: bool,
    is_released: bool,
    has_ended: bool,
}

#[derive(Clone, Debug)]
struct Sent {
    answer: Answer<i64>,
    /// When it takes effect, for answers that do so later.
    at: Option<Mono>,
}

impl Record {
    pub(super) fn new(is_shuffled: bool) -> Record {
        Record {
            runs: BTreeMap::new(),
            names: BTreeMap::new(),
            tickets: 0,
            wakes: BTreeMap::new(),
            last_wake: None,
            is_shuffled,
            steps: 0,
        }
    }

    pub(super) fn started(&mut self, run: RunId, name: u64, deadline: Option<Mono>, ready: usize) {
        let life = Life {
            deadline,
            call: None,
            answer: None,
            ready_by: Some(self.steps + ready as u64),
            is_cancelled: false,
            is_released: false,
            has_ended: false,
        };
        self.runs.insert(run, life);
        self.names.insert(name, run);
    }

    fn ticket(&mut self) -> i64 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn right_answer(&mut self, call: CallId) -> Answer<i64> {
        let ticket = self.ticket();
        let current = self.runs.get(&call.run).and_then(|life| life.call);
        match current {
            Some((_, TELL)) => Answer::Tail(ticket),
            _ => Answer::Resume(ticket),
        }
    }

    pub(super) fn wrong_answer(&mut self, call: CallId, is_tail: bool, dice: &mut Dice) -> Answer<i64> {
        let ticket = self.ticket();
        match dice.below(4) {
            0 if is_tail => Answer::Resume(ticket),
            0 => Answer::Tail(ticket),
            1 => Answer::End(ticket),
            2 => Answer::Failed(HandlerError::new(format!("{} has no luck", call.run))),
            _ => Answer::Unhandled,
        }
    }

    pub(super) fn wake_token(&mut self, at: Mono) -> u64 {
        let token = self.wakes.len() as u64;
        self.wakes.insert(token, at);
        token
    }

    /// A handler gave an answer, which counts if it is the first one to the current call of a run that has not ended.
    pub(super) fn sent(
        &mut self,
        call: CallId,
        answer: &Answer<i64>,
        disposition: Disposition,
        at: Option<Mono>,
    ) -> Result<(), Violation> {
        let life = self.runs.get_mut(&call.run);
        let life = life.filter(|life| !life.has_ended && life.answer.is_none());
        let life = life.filter(|life| life.call.is_some_and(|(current, _)| current == call));
        let expected = if life.is_some() { Disposition::Accepted } else { Disposition::Dropped };
        if disposition != expected {
            let detail = format!("an answer to {call:?} was {disposition:?}, should be {expected:?}");
            return Err(violation("late_dropped", detail));
        }
        if let Some(life) = life {
            life.answer = Some(Sent { answer: answer.clone(), at });
        }
        Ok(())
    }

    pub(super) fn is_ready(&mut self, run: RunId, ready: usize) {
        let by = self.steps + ready as u64;
        if let Some(life) = self.runs.get_mut(&run).filter(|life| !life.has_ended) {
            life.ready_by.get_or_insert(by);
        }
    }

    pub(super) fn tick_begins(&mut self) {
        self.last_wake = None;
    }

    /// All external completions have entered the ready queue. (Timers may wait for room.)
    pub(super) fn completions_entered(&mut self, ready: usize) {
        let by = self.steps + ready as u64;
        for life in self.runs.values_mut().filter(|life| !life.has_ended) {
            if life.answer.as_ref().is_some_and(|sent| sent.at.is_none()) {
                life.ready_by.get_or_insert(by);
            }
        }
    }

    pub(super) fn stepped(&mut self, run: RunId) -> Result<(), Violation> {
        self.steps += 1;
        let steps = self.steps;
        if let Some(life) = self.runs.get_mut(&run) {
            // An answer that was given at once has made the run ready again.
            let again = life.answer.as_ref().is_some_and(|sent| sent.at.is_none());
            life.ready_by = life.ready_by.filter(|by| again && *by > steps);
        }
        let late =
            self.runs.iter().find(|(_, life)| !life.has_ended && life.ready_by.is_some_and(|by| by < steps));
        match late {
            None => Ok(()),
            Some((run, _)) => {
                Err(violation("turns_taken", format!("{run} was ready and others had two turns")))
            }
        }
    }

    pub(super) fn called(&mut self, call: CallId, op: u32) -> Result<(), Violation> {
        let Some(life) = self.runs.get_mut(&call.run) else { return Ok(()) };
        let step = life.call.map_or(0, |(call, _)| call.step);
        if life.has_ended || call.step != step + 1 || (life.call.is_some() && life.answer.is_none()) {
            let detail = format!("{call:?} follows step {step}, whose answer was not applied");
            return Err(violation("one_call_at_a_time", detail));
        }
        (life.call, life.answer) = (Some((call, op)), None);
        life.ready_by = None;
        Ok(())
    }

    pub(super) fn guest(&mut self, event: &GuestEvent<i64>, now: Mono) -> Result<(), Violation> {
        let GuestEvent::Resumed { name, reply } = event else { return Ok(()) };
        let Some((run, life)) = self.names.get(name).and_then(|run| Some((run, self.runs.get(run)?))) else {
            return Ok(());
        };
        let is_tail = matches!(life.call, Some((_, TELL)));
        let right = life.answer.as_ref().is_some_and(|sent| match sent.answer {
            Answer::Resume(ticket) => ticket == *reply && !is_tail,
            Answer::Tail(ticket) => ticket == *reply && is_tail,
            _ => false,
        });
        if !right || life.has_ended {
            let detail = format!("{run} was resumed with {reply}, it was to be {:?}", life.answer);
            return Err(violation("right_reply", detail));
        }
        match life.answer.as_ref().and_then(|sent| sent.at).filter(|at| *at > now) {
            Some(at) => {
                let detail = format!("{run} slept until {}, it was to be {}", now.0, at.0);
                Err(violation("timer_never_early", detail))
            }
            None => Ok(()),
        }
    }

    pub(super) fn woke(&mut self, call: CallId, token: u64, now: Mono) -> Result<(), Violation> {
        let at = self.wakes.get(&token).copied().unwrap_or_default();
        if at > now {
            let detail = format!("{} woke at {}, it was to be {}", call.run, now.0, at.0);
            return Err(violation("timer_never_early", detail));
        }
        // A seed may permute equal deadlines, never different ones.
        let this = (at, if self.is_shuffled { 0 } else { token });
        if self.last_wake.is_some_and(|last| last > this) {
            let detail = format!("{this:?} after {:?}", self.last_wake);
            return Err(violation("timers_in_order", detail));
        }
        self.last_wake = Some(this);
        let waits = self.runs.get(&call.run).is_some_and(|life| {
            !life.has_ended && life.answer.is_none() && life.call.is_some_and(|(current, _)| current == call)
        });
        match waits {
            true => Ok(()),
            false => Err(violation("late_dropped", format!("{call:?} woke and does not wait"))),
        }
    }

    pub(super) fn cancelled(&mut self, run: RunId, disposition: Disposition) -> Result<(), Violation> {
        let Some(life) = self.runs.get_mut(&run) else { return Ok(()) };
        let expected = if life.has_ended { Disposition::Dropped } else { Disposition::Accepted };
        life.is_cancelled |= !life.has_ended;
        match disposition == expected {
            true => Ok(()),
            false => Err(violation("late_dropped", format!("cancelling {run} was {disposition:?}"))),
        }
    }

    pub(super) fn released(&mut self, run: RunId) -> Result<(), Violation> {
        let Some(life) = self.runs.get_mut(&run) else { return Ok(()) };
        if std::mem::replace(&mut life.is_released, true) {
            return Err(violation("released_once", format!("the guest of {run} was released twice")));
        }
        Ok(())
    }

    pub(super) fn outcome(
        &mut self,
        run: RunId,
        outcome: &RunOutcome<i64, ScriptFault>,
        now: Mono,
    ) -> Result<(), Violation> {
        let Some(life) = self.runs.get_mut(&run) else { return Ok(()) };
        if std::mem::replace(&mut life.has_ended, true) {
            return Err(violation("one_outcome", format!("{run} has two")));
        }
        if !life.is_released {
            return Err(violation("released_once", format!("the guest of {run} was not released")));
        }
        let sent = life.answer.as_ref().map(|sent| &sent.answer);
        let is_true = match outcome {
            RunOutcome::Cancelled { .. } => life.is_cancelled,
            // Scripts return 0; every other value is the number of an answer that ends the run.
            RunOutcome::Value(0) => true,
            RunOutcome::Value(value) => sent == Some(&Answer::End(*value)),
            RunOutcome::Failed(error) => match &**error {
                RunError::TimedOut { .. } => life.deadline.is_some_and(|at| at <= now),
                RunError::Unhandled { .. } => sent == Some(&Answer::Unhandled),
                RunError::Handler { error, .. } => sent == Some(&Answer::Failed(error.clone())),
                RunError::ResumeGotTail { .. } => matches!(sent, Some(Answer::Tail(_))),
                RunError::TailGotOther { .. } => matches!(sent, Some(Answer::Resume(_) | Answer::End(_))),
                RunError::Guest(_) | RunError::UnknownOperation { .. } => true,
                RunError::NotAContinuation { .. } | RunError::NotReady => false,
            },
        };
        match (is_true, outcome) {
            (true, _) => Ok(()),
            (false, RunOutcome::Failed(error)) if matches!(**error, RunError::TimedOut { .. }) => {
                Err(violation("timer_never_early", format!("{run} timed out at {}", now.0)))
            }
            (false, _) => {
                Err(violation("outcome_is_true", format!("{run} ended with {outcome:?} after {sent:?}")))
            }
        }
    }

    pub(super) fn at_the_end(&self, left: Gauges) -> Result<(), Violation> {
        if let Some((run, _)) = self.runs.iter().find(|(_, life)| !life.has_ended) {
            return Err(violation(
                "every_run_ends",
                format!("{run} has no outcome; the engine holds {left:?}"),
            ));
        }
        match left == Gauges::default() {
            true => Ok(()),
            false => Err(violation("engine_consistent", format!("in the end it holds {left:?}"))),
        }
    }
}
