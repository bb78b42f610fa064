//! Replays on a host: starts the runs of a recording and answers their calls from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_runs::HandlerError;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::call::HandlerCall;
use crate::fault::TrapReport;
use crate::handler::{Continuation, EffectHandler, Handled, HandlerResult};
use crate::handlers::Handlers;
use crate::host::observe::{Observer, RunEvent};
use crate::host::outcome::{EffectOutcome, RunNumber};
use crate::host::{RunHandle, RunStart, RunStartError};
use crate::limits::RunLimits;
use crate::record::Recording;
use crate::replay::{RecordedReply, Replay, ReplayAction, ReplayEnd};
use crate::script::ScriptAction;
use crate::trace::{TraceEvent, TraceKind};
use crate::value::Value;

/// A step of a replay may take this many times the real time that was allowed when it was recorded. Runs that ended
/// because a step took too long are not run again, so the limit only keeps a replay of an edited recording from going
/// on for ever.
const STEP_TIME_FACTOR: u64 = 10;

/// Starts a run for a replay, on an instance of the recorded program.
pub type StartRun = Box<dyn FnMut(RunStart) -> Result<RunHandle, RunStartError> + Send>;

/// A message of a replay. Messages come in the order of the recording, and the end is the last of them.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayMessage {
    /// The event happened again as it was recorded. `trap` is the report of a run that ended by a trap.
    Event {
        event: TraceEvent,
        trap: Option<TrapReport>,
    },
    End(ReplayEnd),
}

/// Receives the messages of a replay, on the host's thread or on that of [`Replayer::start`].
pub type ReplaySink = Box<dyn FnMut(ReplayMessage) + Send>;

/// Replays a recording on a host: [`Replayer::observer`] goes into the host's options, [`Replayer::register`] replaces
/// the handlers of the instance, and [`Replayer::start`] begins. Clones are the same replay.
#[derive(Clone)]
pub struct Replayer(Arc<Mutex<ReplayerState>>);

struct ReplayerState {
    replay: Replay,
    limits: RunLimits,
    /// `None` before the start and after the end, so that the handlers of a host do not keep it alive.
    start: Option<StartRun>,
    /// `None` after the end.
    sink: Option<ReplaySink>,
    /// The host's runs that take part, by their number there; the names are those of the recording.
    names: BTreeMap<RunNumber, String>,
    handles: BTreeMap<String, RunHandle>,
    /// The calls that wait for their answers, by run: at most one each.
    waiting: BTreeMap<String, oneshot::Sender<RecordedReply>>,
}

impl Replayer {
    pub fn new(recording: Recording, sink: ReplaySink) -> Replayer {
        Replayer(Arc::new(Mutex::new(ReplayerState {
            replay: Replay::new(recording),
            limits: RunLimits::default(),
            start: None,
            sink: Some(sink),
            names: BTreeMap::new(),
            handles: BTreeMap::new(),
            waiting: BTreeMap::new(),
        })))
    }

    /// Answers all operations, replacing the handlers they have.
    pub fn register(&self, handlers: &mut Handlers) {
        handlers.wrap(|_, _| Some(Arc::new(self.clone())));
    }

    /// The observer of the host on which the replay takes place.
    pub fn observer(&self) -> Observer {
        let replayer = self.clone();
        Box::new(move |event: RunEvent<'_>| {
            if let RunEvent::Ended { run, outcome } = event {
                replayer.ended(run, outcome);
            }
        })
    }

    /// Begins the replay. `limits` are those of the recorded runs; time is not measured again.
    pub fn start(&self, limits: &RunLimits, start: StartRun) {
        let mut state = self.0.lock();
        state.limits = RunLimits {
            step_fuel_max: limits.step_fuel_max,
            step_wall_ms_max: limits.step_wall_ms_max.saturating_mul(STEP_TIME_FACTOR),
            wall_ms_max: None,
        };
        state.start = Some(start);
        state.go_on();
    }

    fn ended(&self, run: RunNumber, outcome: &EffectOutcome) {
        let mut state = self.0.lock();
        // Runs that the replay has cancelled have no name any more.
        let Some(name) = state.names.remove(&run) else { return };
        let event = TraceEvent { run: name, what: TraceKind::of_outcome(outcome) };
        let trap = match outcome {
            EffectOutcome::Failed(failure) => failure.trap().cloned(),
            EffectOutcome::Value(_) | EffectOutcome::Cancelled { .. } => None,
        };
        state.handles.remove(&event.run);
        if state.observe(&event, trap) {
            state.go_on();
        }
    }
}

impl ReplayerState {
    fn tell(&mut self, told: ReplayMessage) {
        if let Some(sink) = &mut self.sink {
            sink(told);
        }
    }

    fn finish(&mut self, end: ReplayEnd) {
        self.tell(ReplayMessage::End(end));
        self.sink = None;
        self.start = None;
        self.names.clear();
        self.handles.clear();
        self.waiting.clear();
    }

    /// Returns whether the replay goes on.
    fn observe(&mut self, event: &TraceEvent, trap: Option<TrapReport>) -> bool {
        if self.sink.is_none() {
            return false;
        }
        match self.replay.observe(event) {
            Ok(()) => {
                self.tell(ReplayMessage::Event { event: event.clone(), trap });
                true
            }
            Err(divergence) => {
                self.finish(ReplayEnd::Diverged(divergence));
                false
            }
        }
    }

    /// Carries out the next actions of the recording, until a module has to take a step.
    fn go_on(&mut self) {
        while let Some(action) = self.replay.next_action() {
            match action {
                ReplayAction::Repeat(event) => self.tell(ReplayMessage::Event { event, trap: None }),
                ReplayAction::Start { run, export, args } => {
                    if let Err(problem) = self.start_run(&run, export, args) {
                        let divergence = self.replay.differs(format!("{run} cannot be started: {problem}"));
                        return self.finish(ReplayEnd::Diverged(divergence));
                    }
                }
                ReplayAction::Answer { run, reply } => {
                    if let Some(waiting) = self.waiting.remove(&run) {
                        // The run is waiting for the reply: nothing but this replay ends runs.
                        let _ = waiting.send(reply);
                    }
                }
                ReplayAction::End { run, outcome } => {
                    self.cancel(&run);
                    self.tell(ReplayMessage::Event { event: outcome, trap: None });
                }
            }
        }
        if let Some(end) = self.replay.ended() {
            self.finish(end);
        }
    }

    fn start_run(&mut self, run: &str, export: String, args: Vec<Value>) -> Result<(), RunStartError> {
        let start = RunStart { limits: self.limits.clone(), ..RunStart::new(export, args) };
        let Some(start_run) = &mut self.start else { return Ok(()) };
        let handle = start_run(start)?;
        self.names.insert(handle.id(), run.to_owned());
        self.handles.insert(run.to_owned(), handle);
        Ok(())
    }

    /// Cancels a run of the host, if there is one. The host carries that out before it begins another step.
    fn cancel(&mut self, run: &str) {
        if let Some(handle) = self.handles.remove(run) {
            self.names.remove(&handle.id());
            handle.cancel(None);
        }
        // The answer to a run that was cancelled is dropped.
        self.waiting.remove(run);
    }
}

impl EffectHandler for Replayer {
    fn call(&self, call: HandlerCall) -> Handled {
        let mut state = self.0.lock();
        let Some(run) = state.names.get(&call.run().into()).cloned() else {
            return Handled::Now(Err(HandlerError::new("the replay has ended")));
        };
        if let Some(text) = state.replay.unhandled(&run, &call.op().label) {
            return Handled::Now(Err(HandlerError::new(text)));
        }
        let what = TraceKind::Call { op: call.op().label.to_string(), args: call.args().to_vec() };
        let (reply, answered) = oneshot::channel();
        state.waiting.insert(run.clone(), reply);
        if state.observe(&TraceEvent { run, what }, None) {
            state.go_on();
        }
        drop(state);
        Handled::Later(Box::pin(async move {
            let reply = answered.await.map_err(|_| HandlerError::new("the replay has ended"))?;
            continuation(reply)
        }))
    }
}

fn continuation(reply: RecordedReply) -> HandlerResult {
    match reply.action {
        ScriptAction::Resume => Ok(Continuation::Resume(reply.value)),
        ScriptAction::Tail => Ok(Continuation::Tail(reply.value)),
        ScriptAction::End => Ok(Continuation::End(reply.value)),
        ScriptAction::Plain => Ok(Continuation::Plain(reply.value)),
        ScriptAction::Throw => Err(HandlerError::new(reply.error.unwrap_or_default())),
    }
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        let mut debug = f.debug_struct("Replayer");
        debug.field("replay", &state.replay).field("limits", &state.limits);
        debug.field("waiting", &state.waiting.len()).finish_non_exhaustive()
    }
}
