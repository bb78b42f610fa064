//! The world of effect runs: scripted guests that end, fail or ask for ever; handlers that answer at once, late, twice,
//! wrongly, after a sleep or never; runs that are cancelled at any moment. After the calm every run has had exactly one
//! outcome, and the engine holds nothing any more.

mod handler;
mod record;
mod sabotage;

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_model::Mono;
use millrace_runs::{
    Answer, CallId, Disposition, Effect, Guest, GuestLog, Input, InputRefused, NewRun, Operation, ResumeKind,
    RunId, Runs, RunsLimits, ScriptLine, ScriptedGuest,
};

use self::handler::{Manner, TELL};
pub(crate) use self::record::INVARIANTS;
use self::record::{Record, violation};
pub use self::sabotage::Sabotage;
use self::sabotage::Saboteur;
use crate::check::Violation;
use crate::dice::Dice;
use crate::fault::{Fault, FaultCounts};
use crate::schedule::Schedule;
use crate::trace::Trace;

/// By then every sleep has ended.
const CALM_MS_MAX: u64 = 60_000;
const BUDGET: usize = 5;
const RUNS_MAX: usize = 12;
/// More than any seed makes.
const GUEST_EVENTS_MAX: usize = 1 << 20;
/// How many calls of the past are kept for late answers to name.
const OLD_CALLS_MAX: usize = 64;

#[derive(Debug)]
enum Happening {
    Start,
    /// A handler answers a call that was not answered at once.
    Complete {
        call: CallId,
        answer: Answer<i64>,
    },
    Tick,
    Fate,
}

pub(crate) struct RunsWorld {
    now_ms: u64,
    schedule: Schedule<Happening>,
    dice: Dice,
    runs: Runs<ScriptedGuest<i64>>,
    saboteur: Saboteur,
    log: GuestLog<i64>,
    log_read: usize,
    operations: Arc<[Operation]>,
    record: Record,
    /// Runs that do not end by themselves: their script is endless, or a handler never answers.
    stuck: BTreeSet<RunId>,
    old_calls: Vec<CallId>,
    next_name: u64,
    tick_at: Option<u64>,
    tick_ms: u64,
    stalled_ms: u64,
    pub(crate) trace: Trace,
    pub(crate) faults: FaultCounts,
    pub(crate) steps: u64,
    calm: bool,
}

impl RunsWorld {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, print: bool) -> RunsWorld {
        let limits = RunsLimits {
            max_internal_steps_per_tick: BUDGET,
            runs_max: RUNS_MAX,
            external_max: 4,
            timers_max: 16,
            ..RunsLimits::default()
        };
        let limits = Saboteur::limits(sabotage, limits);
        let mut dice = Dice::new(seed, "runs world");
        let shuffled = dice.chance(500);
        let runs = match shuffled {
            true => Runs::new(limits).shuffled(dice.draw()),
            false => Runs::new(limits),
        };
        let operation = |label: &str, kind| Operation { label: label.into(), kind };
        let tick_ms = dice.between(1, 3);
        let mut schedule = Schedule::new();
        schedule.at(0, Happening::Start);
        schedule.at(100, Happening::Fate);
        RunsWorld {
            now_ms: 0,
            schedule,
            dice,
            runs,
            saboteur: Saboteur::new(sabotage),
            log: GuestLog::new(GUEST_EVENTS_MAX),
            log_read: 0,
            operations: Arc::from([
                operation("Sim.ask", ResumeKind::Resume),
                operation("Sim.tell", ResumeKind::Tail),
            ]),
            record: Record::new(shuffled),
            stuck: BTreeSet::new(),
            old_calls: Vec::new(),
            next_name: 0,
            tick_at: None,
            tick_ms,
            stalled_ms: 0,
            trace: Trace::new(print),
            faults: FaultCounts::default(),
            steps: 0,
            calm: false,
        }
    }

    pub(crate) fn simulated_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) fn run(&mut self, steps: u64) -> Result<(), Violation> {
        while self.steps < steps && self.step()? {}
        self.calm = true;
        self.note("calm");
        for run in std::mem::take(&mut self.stuck) {
            self.cancel(run)?;
        }
        let deadline_ms = self.now_ms + CALM_MS_MAX;
        while self.now_ms < deadline_ms && self.runs.gauges().runs > 0 && self.step()? {}
        // Entries of ended runs leave the external queue with the next tick.
        self.tick()?;
        self.record.at_the_end(self.runs.gauges())
    }

    fn tell(&mut self, input: Input<i64>) -> Result<Disposition, InputRefused> {
        let now = self.now();
        self.saboteur.handle(&mut self.runs, now, input)
    }

    fn now(&self) -> Mono {
        Mono(self.now_ms)
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let Some((at_ms, happening)) = self.schedule.pop() else { return Ok(false) };
        self.steps += 1;
        self.now_ms = at_ms;
        match happening {
            Happening::Start => self.start()?,
            Happening::Complete { call, answer } => self.complete(call, answer)?,
            // A tick that does not match `tick_at` was replaced by one planned for an earlier moment.
            Happening::Tick if self.tick_at == Some(at_ms) => {
                self.tick_at = None;
                self.tick()?;
            }
            Happening::Tick => {}
            Happening::Fate => self.fate()?,
        }
        self.schedule_tick();
        let consistent = self.runs.check_invariants();
        consistent.map_err(|broken| violation("engine_consistent", broken.to_string()))?;
        Ok(true)
    }

    fn schedule_tick(&mut self) {
        let Some(Mono(wanted_ms)) = self.runs.next_deadline() else { return };
        let at = wanted_ms.max(self.now_ms + self.tick_ms).max(self.stalled_ms);
        if self.tick_at.is_none_or(|set| at < set) {
            self.tick_at = Some(at);
            self.schedule.at(at, Happening::Tick);
        }
    }

    fn tick(&mut self) -> Result<(), Violation> {
        self.record.tick_begins();
        self.runs.tick(self.now());
        self.record.completions_entered(self.runs.gauges().ready);
        self.effects(false)?;
        let mut steps = 0;
        while self.runs.step(&mut self.log) {
            steps += 1;
            self.effects(true)?;
            if !self.calm && self.dice.chance(10) {
                self.cancel_any()?;
            }
        }
        let now = self.now();
        self.saboteur.tick_ends(&mut self.runs, now);
        match steps <= BUDGET {
            true => Ok(()),
            false => Err(violation("budget_kept", format!("{steps} steps in a tick, {BUDGET} are allowed"))),
        }
    }

    fn start(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.next_name += 1;
        let (lines, is_endless) = self.script();
        let deadline = self.dice.chance(200).then(|| self.now() + self.dice.between(5, 200));
        let guest = ScriptedGuest::new(self.next_name, lines);
        let operations = Arc::clone(&self.operations);
        let due = deadline.map(|at| self.saboteur.due(at));
        match self.runs.start(self.now(), NewRun { guest, operations, deadline: due }) {
            Ok(run) => {
                self.note(&format!("{run} starts"));
                self.record.started(run, self.next_name, deadline, self.runs.gauges().ready);
                if is_endless {
                    self.stuck.insert(run);
                }
            }
            Err(not_started) => {
                self.note(&format!("not started: {}", not_started.refused));
                self.faults.add(Fault::Refused);
            }
        }
        let next_ms = self.now_ms + self.dice.between(0, 40);
        self.schedule.at(next_ms, Happening::Start);
        Ok(())
    }

    fn script(&mut self) -> (Vec<ScriptLine<i64>>, bool) {
        let requests = self.dice.below(6);
        let line = |dice: &mut Dice| ScriptLine::Request { op: dice.below(2) as u32, args: vec![0] };
        let mut lines: Vec<_> = (0..requests).map(|_| line(&mut self.dice)).collect();
        let endless = self.dice.chance(80) && !lines.is_empty();
        lines.push(match self.dice.below(10) {
            _ if endless => ScriptLine::Goto(0),
            0 => ScriptLine::Fail("scripted".into()),
            1 => ScriptLine::Request { op: 7, args: vec![] },
            _ => ScriptLine::Done(0),
        });
        (lines, endless)
    }

    /// Carries out the effects and records what the guests were told. After a step, the effects show which run took it.
    fn effects(&mut self, after_step: bool) -> Result<(), Violation> {
        let mut stepped = None;
        while self.log_read < self.log.events().len() {
            let event = self.log.events()[self.log_read].clone();
            self.log_read += 1;
            self.record.guest(&event, self.now())?;
        }
        while let Some(effect) = self.saboteur.next_effect(&mut self.runs) {
            match effect {
                Effect::Call { call, op, .. } => {
                    stepped = stepped.or(Some(call.run));
                    self.note(&format!("{} asks for {op} in step {}", call.run, call.step));
                    self.record.called(call, op)?;
                    self.handle_call(call, op)?;
                }
                Effect::Woke { call, token } => {
                    self.note(&format!("{} wakes with {token}", call.run));
                    self.record.woke(call, token, self.now())?;
                    // The run may have ended in the same tick: its outcome is among the effects that follow.
                    if self.runs.is_active(call.run) {
                        let answer = self.record.right_answer(call);
                        self.answer_now(call, &answer)?;
                    }
                }
                Effect::Abandon { call } => self.note(&format!("{} is abandoned", call.run)),
                Effect::Release { run, guest } => {
                    self.record.released(run)?;
                    guest.release(&mut self.log);
                }
                Effect::Failure { run, error } => self.note(&format!("{run} fails: {error}")),
                Effect::Outcome { run, outcome } => {
                    stepped = stepped.or(Some(run));
                    self.note(&format!("{run} ends: {}", outcome.kind()));
                    self.stuck.remove(&run);
                    self.record.outcome(run, &outcome, self.now())?;
                }
            }
        }
        match (after_step, stepped) {
            (false, _) => Ok(()),
            (true, Some(run)) => self.record.stepped(run),
            (true, None) => {
                Err(violation("turns_taken", "a step asked for nothing and ended nothing".into()))
            }
        }
    }

    fn handle_call(&mut self, call: CallId, op: u32) -> Result<(), Violation> {
        if self.old_calls.len() == OLD_CALLS_MAX {
            self.old_calls.remove(0);
        }
        self.old_calls.push(call);
        let manner = if self.calm { Manner::AtOnce } else { Manner::draw(&mut self.dice) };
        let answer = match manner {
            Manner::Wrong => self.record.wrong_answer(call, op == TELL, &mut self.dice),
            _ => self.record.right_answer(call),
        };
        let soon_ms = self.now_ms + self.dice.between(1, 40);
        match manner {
            Manner::AtOnce | Manner::Wrong => self.answer_now(call, &answer)?,
            Manner::Late => self.schedule.at(soon_ms, Happening::Complete { call, answer }),
            Manner::Twice => {
                self.faults.add(Fault::DuplicateAck);
                let again = self.record.right_answer(call);
                self.schedule.at(soon_ms, Happening::Complete { call, answer });
                self.schedule.at(soon_ms + self.dice.below(2), Happening::Complete { call, answer: again });
            }
            Manner::Sleep => {
                let input = Input::AnswerAt { call, at: Mono(soon_ms), answer: answer.clone() };
                self.timed(call, input, answer, Mono(soon_ms))?;
            }
            Manner::Wake => {
                let token = self.record.wake_token(Mono(soon_ms));
                let input = Input::WakeAt { call, at: Mono(soon_ms), token };
                if self.tell(input).is_err() {
                    self.faults.add(Fault::Refused);
                    self.schedule.at(soon_ms, Happening::Complete { call, answer });
                }
            }
            Manner::Silent => {
                self.faults.add(Fault::Vanished);
                self.stuck.insert(call.run);
            }
        }
        Ok(())
    }

    fn timed(
        &mut self,
        call: CallId,
        input: Input<i64>,
        answer: Answer<i64>,
        at: Mono,
    ) -> Result<(), Violation> {
        match self.tell(input) {
            Ok(disposition) => self.record.sent(call, &answer, disposition, Some(at)),
            Err(_) => {
                self.faults.add(Fault::Refused);
                self.schedule.at(at.0, Happening::Complete { call, answer });
                Ok(())
            }
        }
    }

    fn answer_now(&mut self, call: CallId, answer: &Answer<i64>) -> Result<(), Violation> {
        let input = Input::Answered { call, answer: answer.clone() };
        let disposition = self.tell(input);
        let disposition = disposition.map_err(|refused| violation("answers_taken", refused.to_string()))?;
        self.record.sent(call, answer, disposition, None)?;
        self.record.is_ready(call.run, self.runs.gauges().ready);
        Ok(())
    }

    fn complete(&mut self, call: CallId, answer: Answer<i64>) -> Result<(), Violation> {
        let input = Input::Completed { call, answer: answer.clone() };
        match self.tell(input) {
            Ok(disposition) => {
                self.note(&format!("{} step {} is answered: {disposition:?}", call.run, call.step));
                self.record.sent(call, &answer, disposition, None)
            }
            Err(refused) => {
                self.note(&refused.to_string());
                self.faults.add(Fault::Refused);
                self.schedule.at(self.now_ms + 1, Happening::Complete { call, answer });
                Ok(())
            }
        }
    }

    fn cancel_any(&mut self) -> Result<(), Violation> {
        let active: Vec<RunId> = self.runs.active().collect();
        match self.dice.pick(&active).copied() {
            Some(run) => self.cancel(run),
            None => Ok(()),
        }
    }

    fn cancel(&mut self, run: RunId) -> Result<(), Violation> {
        self.faults.add(Fault::Cancelled);
        // The second cancel must change nothing.
        for _ in 0..2 {
            let input = Input::Cancel { run, reason: None };
            let disposition = self.tell(input).unwrap_or(Disposition::Dropped);
            self.note(&format!("cancel {run}: {disposition:?}"));
            self.record.cancelled(run, disposition)?;
            self.effects(false)?;
        }
        Ok(())
    }

    /// Now and then a run is cancelled, an answer comes for a call of the past, or the shell is busy with something
    /// else.
    fn fate(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        match self.dice.below(6) {
            0 | 1 => self.cancel_any()?,
            2 | 3 => {
                if let Some(call) = self.dice.pick(&self.old_calls).copied() {
                    self.faults.add(Fault::StrayAck);
                    let answer = self.record.right_answer(call);
                    self.complete(call, answer)?;
                }
            }
            4 => {
                self.faults.add(Fault::Congested);
                self.stalled_ms = self.now_ms + self.dice.between(10, 100);
            }
            _ => {}
        }
        let next_ms = self.now_ms + self.dice.between(5, 60);
        self.schedule.at(next_ms, Happening::Fate);
        Ok(())
    }

    fn note(&mut self, line: &str) {
        self.trace.note(self.now_ms, line);
    }
}
