//! A shell for tests: scripted guests, scripted handlers, a virtual clock, and a trace of effects as lines of text.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use millrace_model::Mono;
use millrace_runs::{
    Answer, CallId, Disposition, Effect, Guest, GuestLog, Input, NewRun, Operation, ResumeKind, RunId,
    RunOutcome, Runs, RunsLimits, ScriptFault, ScriptLine, ScriptedGuest,
};

pub(crate) type Value = i64;
pub(crate) type Line = ScriptLine<Value>;
pub(crate) type Outcome = RunOutcome<Value, ScriptFault>;

/// Position of `Test.ask`, an operation of kind `resume`.
pub(crate) const ASK: u32 = 0;
/// Position of `Test.tell`, an operation of kind `tail`.
pub(crate) const TELL: u32 = 1;

/// How a handler reacts to a call.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers at once.
    Now(Answer<Value>),
    /// Answers when the test completes the call.
    Later,
    /// Answers after this many milliseconds: a sleep.
    After(u64, Answer<Value>),
}

type Handler = Box<dyn FnMut(CallId, u32, &[Value]) -> Reply>;

pub(crate) struct Harness {
    pub(crate) runs: Runs<ScriptedGuest<Value>>,
    pub(crate) log: GuestLog<Value>,
    pub(crate) now: Mono,
    /// All effects of the engine, in order.
    pub(crate) trace: Vec<String>,
    pub(crate) outcomes: Vec<(RunId, Outcome)>,
    /// Calls that have no answer yet.
    pub(crate) open: Vec<CallId>,
    handler: Handler,
    operations: Arc<[Operation]>,
    guests: u64,
}

impl Harness {
    pub(crate) fn new(handler: impl FnMut(CallId, u32, &[Value]) -> Reply + 'static) -> Harness {
        Harness::with(RunsLimits::default(), handler)
    }

    pub(crate) fn with(
        limits: RunsLimits,
        handler: impl FnMut(CallId, u32, &[Value]) -> Reply + 'static,
    ) -> Harness {
        let operation = |label: &str, kind| Operation { label: label.into(), kind };
        Harness {
            runs: Runs::new(limits),
            log: GuestLog::new(1 << 16),
            now: Mono(0),
            trace: Vec::new(),
            outcomes: Vec::new(),
            open: Vec::new(),
            handler: Box::new(handler),
            operations: Arc::from([
                operation("Test.ask", ResumeKind::Resume),
                operation("Test.tell", ResumeKind::Tail),
            ]),
            guests: 0,
        }
    }

    pub(crate) fn try_start(
        &mut self,
        lines: Vec<Line>,
        deadline: Option<Mono>,
    ) -> Result<RunId, millrace_runs::StartRefused> {
        self.guests += 1;
        let guest = ScriptedGuest::new(self.guests, lines);
        let start = NewRun { guest, operations: Arc::clone(&self.operations), deadline };
        self.runs.start(self.now, start).map_err(|not_started| {
            not_started.guest.release(&mut self.log);
            not_started.refused
        })
    }

    pub(crate) fn start(&mut self, lines: Vec<Line>) -> RunId {
        self.try_start(lines, None).expect("room for a run")
    }

    pub(crate) fn cancel(&mut self, run: RunId) -> bool {
        self.input(Input::Cancel { run, reason: None }) == Disposition::Accepted
    }

    pub(crate) fn complete(&mut self, call: CallId, answer: Answer<Value>) -> Disposition {
        self.input(Input::Completed { call, answer })
    }

    pub(crate) fn input(&mut self, input: Input<Value>) -> Disposition {
        let disposition = self.runs.handle(self.now, input).expect("not refused");
        self.effects();
        disposition
    }

    /// Runs a whole tick. Returns how many steps were executed.
    pub(crate) fn tick(&mut self) -> usize {
        self.begin_tick();
        let mut steps = 0;
        while self.step() {
            steps += 1;
        }
        self.check();
        steps
    }

    pub(crate) fn begin_tick(&mut self) {
        self.runs.tick(self.now);
        self.effects();
    }

    pub(crate) fn step(&mut self) -> bool {
        let stepped = self.runs.step(&mut self.log);
        self.effects();
        stepped
    }

    /// Ticks until nothing can happen before time passes.
    pub(crate) fn settle(&mut self) {
        while self.runs.next_deadline().is_some_and(|at| at <= self.now) {
            self.tick();
        }
    }

    /// Settles and moves the clock to the next deadline, again and again, until only open handlers could continue a
    /// run.
    pub(crate) fn run_virtual(&mut self) {
        self.settle();
        while let Some(at) = self.runs.next_deadline() {
            self.now = at.max(self.now);
            self.settle();
        }
    }

    pub(crate) fn outcome(&self, run: RunId) -> Option<&Outcome> {
        let mut of_run = self.outcomes.iter().filter(|(id, _)| *id == run);
        let first = of_run.next();
        assert!(of_run.next().is_none(), "{run} has two outcomes");
        first.map(|(_, outcome)| outcome)
    }

    pub(crate) fn error(&self, run: RunId) -> String {
        match self.outcome(run) {
            Some(RunOutcome::Failed(error)) => error.to_string(),
            other => panic!("{run} should have failed: {other:?}"),
        }
    }

    pub(crate) fn check(&self) {
        if let Err(violation) = self.runs.check_invariants() {
            panic!("{violation}");
        }
    }

    pub(crate) fn effects(&mut self) {
        while let Some(effect) = self.runs.next_effect() {
            match effect {
                Effect::Call { call, op, args } => self.call(call, op, &args),
                Effect::Woke { call, token } => {
                    self.trace.push(format!("woke {} {}", call.run, token));
                }
                Effect::Abandon { call } => {
                    self.open.retain(|open| *open != call);
                    self.trace.push(format!("abandon {}", call.run));
                }
                Effect::Release { run, guest } => {
                    guest.release(&mut self.log);
                    self.trace.push(format!("release {run}"));
                }
                Effect::Failure { run, error } => self.trace.push(format!("failure {run}: {error}")),
                Effect::Outcome { run, outcome } => {
                    self.trace.push(format!("outcome {run} {}", outcome.kind()));
                    self.outcomes.push((run, outcome));
                }
            }
        }
    }

    fn call(&mut self, call: CallId, op: u32, args: &[Value]) {
        self.trace.push(format!("call {} {op} {args:?}", call.run));
        let disposition = match (self.handler)(call, op, args) {
            Reply::Now(answer) => self.runs.handle(self.now, Input::Answered { call, answer }),
            Reply::After(ms, answer) => {
                let at = self.now + ms;
                self.runs.handle(self.now, Input::AnswerAt { call, at, answer })
            }
            Reply::Later => {
                self.open.push(call);
                return;
            }
        };
        assert_eq!(disposition, Ok(Disposition::Accepted));
    }
}

pub(crate) fn ask(arg: Value) -> Line {
    ScriptLine::Request { op: ASK, args: vec![arg] }
}

pub(crate) fn tell(arg: Value) -> Line {
    ScriptLine::Request { op: TELL, args: vec![arg] }
}

/// A guest that makes requests for ever.
pub(crate) fn endless() -> Vec<Line> {
    vec![ask(0), ScriptLine::Goto(0)]
}
