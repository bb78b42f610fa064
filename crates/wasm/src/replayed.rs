//! Replays as handlers of a host: every operation is answered from a recording.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_runs::HandlerError;
use tokio::sync::oneshot;

use crate::call::Call;
use crate::handler::{Continuation, Handled, Handler, HandlerResult};
use crate::handlers::Handlers;
use crate::record::Recording;
use crate::replay::{Divergence, RecordedReply, Replay, ReplayAction};
use crate::script::ScriptAction;
use crate::trace::{TraceEvent, TraceKind};
use crate::value::Value;

/// Cancels a run of the host, by its name: `run_1`.
pub type CancelRun = Arc<dyn Fn(&str, Option<Value>) + Send + Sync>;

/// Answers the runs of a host from a recording. Runs must be started in the recorded order, and the host's outcomes told
/// to [`Replayer::outcome`].
#[derive(Clone)]
pub struct Replayer(Arc<Mutex<State>>);

struct State {
    replay: Replay,
    /// The calls that wait for their answers, by run: at most one each.
    waiting: BTreeMap<String, oneshot::Sender<RecordedReply>>,
    divergence: Option<Divergence>,
    cancel: CancelRun,
}

impl Replayer {
    pub fn new(recording: Recording, cancel: CancelRun) -> Replayer {
        let (waiting, divergence) = (BTreeMap::new(), None);
        Replayer(Arc::new(Mutex::new(State { replay: Replay::new(recording), waiting, divergence, cancel })))
    }

    /// Answers all operations, replacing the handlers they have.
    pub fn register(&self, handlers: &mut Handlers) {
        handlers.wrap(|_, _| Some(Arc::new(self.clone())));
    }

    /// Hears how a run ended.
    pub fn outcome(&self, run: &str, kind: &str, value: Value) {
        let what = TraceKind::Outcome { kind: kind.to_owned(), value };
        let mut state = self.lock();
        let goes_on = state.hear(&TraceEvent { run: run.to_owned(), what });
        state.act(goes_on);
    }

    /// The first difference from the recording, once the runs have ended.
    pub fn divergence(&self) -> Option<Divergence> {
        let state = self.lock();
        state.divergence.clone().or_else(|| state.replay.unfinished())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether the replay goes on.
    fn hear(&mut self, event: &TraceEvent) -> bool {
        if self.divergence.is_some() {
            return false;
        }
        if let Err(divergence) = self.replay.observe(event) {
            self.divergence = Some(divergence);
            // Whoever waits is told that nothing more comes.
            self.waiting.clear();
            return false;
        }
        true
    }

    fn act(&mut self, goes_on: bool) {
        if !goes_on {
            return;
        }
        while let Some(action) = self.replay.next_action() {
            match action {
                ReplayAction::Answer { run, reply } => {
                    if let Some(waiting) = self.waiting.remove(&run) {
                        // A run that has ended meanwhile needs no answer.
                        let _ = waiting.send(reply);
                    }
                }
                ReplayAction::Cancel { run, reason } => {
                    self.waiting.remove(&run);
                    (self.cancel)(&run, reason);
                }
            }
        }
        if self.replay.is_done() {
            self.waiting.clear();
        }
    }
}

impl Handler for Replayer {
    fn call(&self, call: Call) -> Handled {
        let run = call.run().to_string();
        let what = TraceKind::Call { op: call.op().label.to_string(), args: call.args().to_vec() };
        let (reply, answered) = oneshot::channel();
        let mut state = self.lock();
        if let Some(text) = state.replay.unhandled(&run, &call.op().label) {
            return Handled::Now(Err(HandlerError::new(text)));
        }
        if !state.hear(&TraceEvent { run: run.clone(), what }) {
            return Handled::Now(Err(HandlerError::new("the replay has left the recording")));
        }
        state.waiting.insert(run, reply);
        state.act(true);
        drop(state);
        let hold = call.hold_clock();
        Handled::Later(Box::pin(async move {
            let reply = answered.await.map_err(|_| HandlerError::new("the recording ends here"))?;
            drop(hold);
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
        f.debug_struct("Replayer").field("divergence", &self.lock().divergence).finish_non_exhaustive()
    }
}
