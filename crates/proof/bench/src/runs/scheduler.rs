//! Loads of the scheduler: endless scripted guests, handlers that answer at once or sleep, idle runs beside them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_model::Mono;
use millrace_runs::{
    Answer, CallId, Effect, Guest, GuestLog, Input, NewRun, Operation, ResumeKind, RunId, Runs, RunsLimits,
    ScriptLine, ScriptedGuest,
};

use crate::cpu::CpuTime;
use crate::error::BenchError;
use crate::runs::StepPace;

/// A time so far away that a timer never fires in a load.
const NEVER: Mono = Mono(1 << 50);
/// Ticks between two readings of the clock.
const TICKS: u32 = 16;

pub(super) type Engine = Runs<ScriptedGuest<i64>>;
pub(super) type Script = Arc<[ScriptLine<i64>]>;

pub(super) struct SchedulerLoad {
    pub(super) runs: Engine,
    pub(super) log: GuestLog<i64>,
    operations: Arc<[Operation]>,
    now: Mono,
}

pub(super) struct Served {
    pub(super) ticks: u64,
    pub(super) time: Duration,
}

impl SchedulerLoad {
    pub(super) fn new(busy: usize, idle: usize) -> Result<SchedulerLoad, BenchError> {
        let mut load = SchedulerLoad::empty();
        let (asks_once, endless) = (asks_once(), endless());
        for _ in 0..idle {
            load.start(&asks_once, Some(NEVER))?;
        }
        let mut calls = Vec::new();
        load.run_ready(&mut |call| calls.push(call));
        for call in calls {
            load.input(Input::WakeAt { call, at: NEVER, token: 0 })?;
        }
        for _ in 0..busy {
            load.start(&endless, None)?;
        }
        Ok(load)
    }

    pub(super) fn empty() -> SchedulerLoad {
        SchedulerLoad {
            runs: Runs::new(RunsLimits::default()),
            log: GuestLog::new(0),
            operations: Arc::from([Operation { label: "Bench.ask".into(), kind: ResumeKind::Resume }]),
            now: Mono(0),
        }
    }

    pub(super) fn start(&mut self, script: &Script, deadline: Option<Mono>) -> Result<RunId, BenchError> {
        let guest = ScriptedGuest::new(0, Arc::clone(script));
        let start = NewRun { guest, operations: Arc::clone(&self.operations), deadline };
        self.runs.start(self.now, start).map_err(|not_started| BenchError::RunRefused(not_started.refused))
    }

    pub(super) fn input(&mut self, input: Input<i64>) -> Result<(), BenchError> {
        self.runs.handle(self.now, input)?;
        Ok(())
    }

    /// Ticks until no run is ready. Passes each call to `called` and leaves it unanswered.
    pub(super) fn run_ready(&mut self, called: &mut dyn FnMut(CallId)) {
        while self.runs.gauges().ready > 0 {
            self.runs.tick(self.now);
            while self.runs.step(&mut self.log) {
                while let Some(effect) = self.runs.next_effect() {
                    if let Effect::Call { call, .. } = effect {
                        called(call);
                    }
                }
            }
        }
    }

    /// Drives the runs with handlers that answer as soon as they are called.
    pub(super) fn answer_at_once(&mut self, time: Duration) -> Result<StepPace, BenchError> {
        self.drive(time, |_, call| Input::Answered { call, answer: Answer::Resume(1) })
    }

    /// Drives the runs with handlers that sleep for a millisecond of the virtual clock.
    pub(super) fn sleep_one_ms(&mut self, time: Duration) -> Result<StepPace, BenchError> {
        self.drive(time, |now, call| Input::AnswerAt { call, at: now + 1, answer: Answer::Resume(1) })
    }

    fn drive(
        &mut self,
        time: Duration,
        answer: impl Fn(Mono, CallId) -> Input<i64>,
    ) -> Result<StepPace, BenchError> {
        let before = self.runs.counters().steps;
        let (begun, cpu) = (Instant::now(), CpuTime::start());
        while begun.elapsed() < time {
            for _ in 0..TICKS {
                self.now = self.now + 1;
                self.runs.tick(self.now);
                while self.runs.step(&mut self.log) {
                    self.effects(&answer)?;
                }
            }
        }
        Ok(StepPace { steps: self.runs.counters().steps - before, time: cpu.elapsed() })
    }

    fn effects(&mut self, answer: impl Fn(Mono, CallId) -> Input<i64>) -> Result<(), BenchError> {
        while let Some(effect) = self.runs.next_effect() {
            match effect {
                Effect::Call { call, .. } => {
                    let input = answer(self.now, call);
                    self.runs.handle(self.now, input)?;
                }
                Effect::Release { guest, .. } => guest.release(&mut self.log),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The probe: the same guests, stepped in turn without queues, effects or ids.
pub(super) fn bare_loop(guests: usize, time: Duration) -> StepPace {
    let endless = endless();
    let mut log = GuestLog::new(0);
    let mut guests: Vec<_> = (0..guests).map(|_| ScriptedGuest::new(0, Arc::clone(&endless))).collect();
    for guest in &mut guests {
        std::hint::black_box(guest.start(&mut log));
    }
    let (mut steps, begun, cpu) = (0, Instant::now(), CpuTime::start());
    while begun.elapsed() < time {
        for _ in 0..TICKS {
            for guest in &mut guests {
                std::hint::black_box(guest.resume(&mut log, 1));
                steps += 1;
            }
        }
    }
    StepPace { steps, time: cpu.elapsed() }
}

/// Measures how long it takes until a run goes on after its external completion has arrived, while `busy` runs are
/// always ready.
pub(super) fn ticks_until_served(busy: usize) -> Result<Served, BenchError> {
    let mut load = SchedulerLoad::empty();
    let waiting = load.start(&asks_once(), None)?;
    let mut calls = Vec::new();
    load.run_ready(&mut |call| calls.push(call));
    let endless = endless();
    for _ in 0..busy {
        load.start(&endless, None)?;
    }
    let at_once = |_: Mono, call| Input::Answered { call, answer: Answer::Resume(1) };
    // Lets the runs have a few turns before the completion arrives.
    for _ in 0..TICKS {
        load.runs.tick(load.now);
        while load.runs.step(&mut load.log) {
            load.effects(at_once)?;
        }
    }
    for call in calls {
        load.input(Input::Completed { call, answer: Answer::Resume(1) })?;
    }
    let (mut ticks, begun) = (0, CpuTime::start());
    while load.runs.is_active(waiting) {
        load.runs.tick(load.now);
        ticks += 1;
        while load.runs.step(&mut load.log) && load.runs.is_active(waiting) {
            load.effects(at_once)?;
        }
        load.effects(at_once)?;
    }
    Ok(Served { ticks, time: begun.elapsed() })
}

/// A script that asks for an effect and returns.
pub(super) fn asks_once() -> Script {
    Arc::from([ScriptLine::Request { op: 0, args: vec![1] }, ScriptLine::Done(0)])
}

fn endless() -> Script {
    Arc::from([ScriptLine::Request { op: 0, args: vec![] }, ScriptLine::Goto(0)])
}
