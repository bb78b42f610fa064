//! Replays of recordings: handlers are answered from the file, in the order of the steps that the modules made, and the
//! first thing that differs is reported with both sides.
//!
//! A replay compares each call and each outcome with the recording. Steps are released one at a time in their recorded
//! order, so that runs which share an instance see its memory as it was.

use std::collections::BTreeMap;
use std::fmt;

use crate::record::{Recording, to_json};
use crate::script::ScriptAction;
use crate::tagged::to_tagged;
use crate::trace::{TraceEvent, TraceKind};
use crate::value::Value;

/// What the driver of a replay has to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayAction {
    /// Answer the call that this run waits for.
    Answer {
        run: String,
        reply: RecordedReply,
    },
    Cancel {
        run: String,
        reason: Option<Value>,
    },
}

/// A handler's answer as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedReply {
    pub action: ScriptAction,
    pub value: Value,
    /// For `throw`.
    pub error: Option<String>,
}

impl RecordedReply {
    fn throw(error: &str) -> RecordedReply {
        RecordedReply { action: ScriptAction::Throw, value: Value::Nil, error: Some(error.to_owned()) }
    }
}

/// The first difference between a recording and its replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Divergence {
    /// The line of the recording; `None` behind its end.
    pub line: Option<usize>,
    pub recorded: String,
    pub replayed: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "the replay differs from the recording at line {line}")?,
            None => f.write_str("the replay differs from the recording at its end")?,
        }
        write!(f, "\n  recorded: {}\n  replayed: {}", self.recorded, self.replayed)
    }
}

/// A step that a module made (a call or its end), or a cancellation.
#[derive(Debug)]
struct Step {
    line: usize,
    event: TraceEvent,
    /// Of a call: what it was answered, if that was recorded.
    reply: Option<RecordedReply>,
}

/// A recording and how far its replay has got.
#[derive(Debug)]
pub struct Replay {
    steps: Vec<Step>,
    at: usize,
    /// The step of the call that each run waits for, by run.
    waiting: BTreeMap<String, usize>,
    /// Steps in front of this one were released.
    released: usize,
}

impl Replay {
    pub fn new(recording: Recording) -> Replay {
        let mut steps: Vec<Step> = Vec::new();
        let mut calls: BTreeMap<String, usize> = BTreeMap::new();
        for (line, event) in recording.events {
            match &event.what {
                TraceKind::Start { .. } | TraceKind::Woke { .. } => continue,
                TraceKind::Cancel { accepted: false } => continue,
                TraceKind::Reply { action, value, error, .. } => {
                    let reply = RecordedReply { action: *action, value: value.clone(), error: error.clone() };
                    let call = calls.get(&event.run).and_then(|at| steps.get_mut(*at));
                    if let Some(call) = call {
                        call.reply = Some(reply);
                    }
                    continue;
                }
                TraceKind::Call { .. } => {
                    calls.insert(event.run.clone(), steps.len());
                }
                TraceKind::Cancel { .. } | TraceKind::Outcome { .. } => {}
            }
            steps.push(Step { line, event, reply: None });
        }
        Replay { steps, at: 0, waiting: BTreeMap::new(), released: 0 }
    }

    /// Compares what happened now with the recording. Replies and wake-ups are not compared: they come from it.
    ///
    /// # Errors
    ///
    /// [`Divergence`] if the recording has something else at this place.
    pub fn observe(&mut self, event: &TraceEvent) -> Result<(), Divergence> {
        match &event.what {
            TraceKind::Call { .. } | TraceKind::Outcome { .. } => {}
            // A cancellation is this replay's own doing, by `next_action`.
            TraceKind::Start { .. }
            | TraceKind::Woke { .. }
            | TraceKind::Reply { .. }
            | TraceKind::Cancel { .. } => return Ok(()),
        }
        let Some(step) = self.steps.get(self.at) else {
            let recorded = "nothing: the recording ends here".to_owned();
            return Err(Divergence { line: None, recorded, replayed: shown(event) });
        };
        if to_json(&step.event) != to_json(event) {
            return Err(Divergence {
                line: Some(step.line),
                recorded: shown(&step.event),
                replayed: shown(event),
            });
        }
        match event.what {
            TraceKind::Call { .. } => drop(self.waiting.insert(event.run.clone(), self.at)),
            _ => drop(self.waiting.remove(&event.run)),
        }
        self.at += 1;
        Ok(())
    }

    /// What has to happen so that the next recorded step can; `None` while the run of that step is still on its way to it.
    pub fn next_action(&mut self) -> Option<ReplayAction> {
        let step = self.steps.get(self.at)?;
        if self.released > self.at {
            return None;
        }
        let run = step.event.run.clone();
        if let TraceKind::Cancel { .. } = &step.event.what {
            self.at += 1;
            let reason = self.reason_of(&run);
            // The outcome that follows comes of it.
            self.released = self.at + 1;
            return Some(ReplayAction::Cancel { run, reason });
        }
        let call = *self.waiting.get(&run)?;
        let reply = match (&self.steps[call].reply, &step.event.what) {
            (Some(reply), _) => reply.clone(),
            // The run ended without an answer, by its deadline for one: it ends with the same text.
            (None, TraceKind::Outcome { value, .. }) => {
                RecordedReply::throw(value.as_str().unwrap_or_default())
            }
            (None, _) => RecordedReply::throw("the recording has no reply to this call"),
        };
        self.released = self.at + 1;
        self.waiting.remove(&run);
        Some(ReplayAction::Answer { run, reply })
    }

    /// Why the run was cancelled, as its outcome says it.
    fn reason_of(&self, run: &str) -> Option<Value> {
        let mut later = self.steps.iter().skip(self.at).map(|step| &step.event);
        let outcome = later.find_map(|event| match &event.what {
            TraceKind::Outcome { value, .. } if event.run == run => Some(value.clone()),
            _ => None,
        });
        outcome.filter(|reason| !reason.is_nil())
    }

    /// The text with which the run failed because this call had no handler, if the recording has that next. A replay has
    /// handlers for all operations, so it must fail the call itself.
    pub fn unhandled(&self, run: &str, op: &str) -> Option<&str> {
        let next = &self.steps.get(self.at)?.event;
        let TraceKind::Outcome { kind, value } = &next.what else { return None };
        let text = value.as_str().filter(|_| kind == "failed" && next.run == run)?;
        let label = text.strip_prefix("Unhandled effect ")?;
        (label == op || label.strip_prefix(op).is_some_and(|kind| kind.starts_with(" ("))).then_some(text)
    }

    /// Whether everything that was recorded has happened again.
    pub fn is_done(&self) -> bool {
        self.at == self.steps.len()
    }

    /// Why a replay in which nothing happens any more is not done.
    pub fn unfinished(&self) -> Option<Divergence> {
        let step = self.steps.get(self.at)?;
        Some(Divergence {
            line: Some(step.line),
            recorded: shown(&step.event),
            replayed: "nothing: no run is left that could do it".to_owned(),
        })
    }
}

fn shown(event: &TraceEvent) -> String {
    let run = &event.run;
    match &event.what {
        TraceKind::Call { op, args } => {
            let args: Vec<_> = args.iter().map(to_tagged).collect();
            format!("{run} calls {op} with {}", serde_json::Value::Array(args))
        }
        TraceKind::Outcome { kind, value } => format!("{run} ends: {kind} {}", to_tagged(value)),
        TraceKind::Cancel { .. } => format!("{run} is cancelled"),
        TraceKind::Start { export, .. } => format!("{run} starts {export}"),
        TraceKind::Woke { op } | TraceKind::Reply { op, .. } => format!("{run} goes on after {op}"),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
