//! Replays of recordings: handlers answer from the file, in the order of the steps that the modules made. The first
//! difference is reported with both sides.
//!
//! A replay walks along the recorded events. Steps of modules, which end in a call or an outcome, are released one at a
//! time and compared with the recording, so runs that share an instance see its memory as it was. Everything else is
//! repeated as it was recorded: starts, wake-ups, replies, cancellations, and the ends of runs that the clock or a
//! cancellation ended. No step of a module is made for those.
//!
//! [`Recording::parse`] has checked that the events can follow one another, so each event is either repeated at once or
//! is the end of a step that can be released: a replay never waits for something that cannot come.

use std::collections::BTreeMap;
use std::fmt;

use crate::record::{Recording, to_json};
use crate::script::ScriptAction;
use crate::tagged::to_tagged;
use crate::trace::{TraceEvent, TraceKind};
use crate::value::Value;

/// The next action for the driver of a replay.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayAction {
    /// Report an event that no module takes part in.
    Repeat(TraceEvent),
    /// Start a run: its first step is the next recorded one.
    Start { run: String, export: String, args: Vec<Value> },
    /// Answer the call that this run waits for: the step that follows is the next recorded one.
    Answer { run: String, reply: RecordedReply },
    /// Report the outcome of a run that makes no further step. If the replay has started the run, the driver cancels
    /// it, and the events of that cancellation are not part of the replay.
    End { run: String, outcome: TraceEvent },
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

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// Everything that was recorded happened again, and every run has ended.
    Whole,
    /// Everything that was recorded happened again. The recording ends with this line, before these runs have ended.
    CutOff {
        line: usize,
        runs: Vec<String>,
    },
    Diverged(Divergence),
}

/// A run of the recording.
#[derive(Debug)]
enum ReplayRun {
    /// Its first step was not released yet.
    New {
        export: String,
        args: Vec<Value>,
    },
    /// The module has taken steps. Holds the reply to its last call, once that was recorded.
    Started {
        reply: Option<RecordedReply>,
    },
    Ended,
}

/// A recording and the progress of its replay.
#[derive(Debug)]
pub struct Replay {
    events: Vec<(usize, TraceEvent)>,
    at: usize,
    runs: BTreeMap<String, ReplayRun>,
    /// A step was released, and has not ended yet.
    is_stepping: bool,
}

impl Replay {
    pub fn new(recording: Recording) -> Replay {
        Replay { events: recording.into_events(), at: 0, runs: BTreeMap::new(), is_stepping: false }
    }

    /// Compares the end of a module's step, a call or an outcome, with the recording.
    ///
    /// # Errors
    ///
    /// [`Divergence`] if the recording has something else at this place.
    pub fn observe(&mut self, event: &TraceEvent) -> Result<(), Divergence> {
        let Some((line, recorded)) = self.events.get(self.at) else {
            let recorded = "nothing: the recording ends here".to_owned();
            return Err(Divergence { line: None, recorded, replayed: shown(event) });
        };
        if compared(recorded) != compared(event) {
            return Err(Divergence { line: Some(*line), recorded: shown(recorded), replayed: shown(event) });
        }
        let run = match &event.what {
            TraceKind::Outcome { .. } => ReplayRun::Ended,
            _ => ReplayRun::Started { reply: None },
        };
        self.runs.insert(event.run.clone(), run);
        self.is_stepping = false;
        self.at += 1;
        Ok(())
    }

    /// The next action; `None` while a step is in progress, and at the end.
    pub fn next_action(&mut self) -> Option<ReplayAction> {
        if self.is_stepping {
            return None;
        }
        let (_, event) = self.events.get(self.at)?.clone();
        let run = event.run.clone();
        match &event.what {
            TraceKind::Start { export, args } => {
                let (export, args) = (export.clone(), args.clone());
                self.runs.insert(run, ReplayRun::New { export, args });
            }
            TraceKind::Woke { .. } | TraceKind::Cancel { .. } => {}
            TraceKind::Reply { action, value, error, .. } => {
                let reply = RecordedReply { action: *action, value: value.clone(), error: error.clone() };
                self.runs.insert(run, ReplayRun::Started { reply: Some(reply) });
            }
            TraceKind::Outcome { kind, timed, .. } if *timed || kind == "cancelled" => {
                self.at += 1;
                self.runs.insert(run.clone(), ReplayRun::Ended);
                return Some(ReplayAction::End { run, outcome: event });
            }
            TraceKind::Call { .. } | TraceKind::Outcome { .. } => return Some(self.release(run)),
        }
        self.at += 1;
        Some(ReplayAction::Repeat(event))
    }

    /// Lets the run take the step that ends with the next recorded event.
    fn release(&mut self, run: String) -> ReplayAction {
        self.is_stepping = true;
        match self.runs.insert(run.clone(), ReplayRun::Started { reply: None }) {
            Some(ReplayRun::New { export, args }) => ReplayAction::Start { run, export, args },
            Some(ReplayRun::Started { reply: Some(reply) }) => ReplayAction::Answer { run, reply },
            // No valid recording leads here: the run would be waiting, or have ended.
            Some(ReplayRun::Started { reply: None } | ReplayRun::Ended) | None => {
                let reply = RecordedReply::throw("the recording has no reply to this call");
                ReplayAction::Answer { run, reply }
            }
        }
    }

    /// The text with which the run failed because this call had no handler, if that is the next recorded event. A
    /// replay has handlers for all operations, so it must fail the call itself.
    pub fn unhandled(&self, run: &str, op: &str) -> Option<&str> {
        let (_, next) = self.events.get(self.at)?;
        let TraceKind::Outcome { kind, value, .. } = &next.what else { return None };
        let text = value.as_str().filter(|_| kind == "failed" && next.run == run)?;
        let label = text.strip_prefix("Unhandled effect ")?;
        (label == op || label.strip_prefix(op).is_some_and(|kind| kind.starts_with(" ("))).then_some(text)
    }

    /// The result of the replay, if everything that was recorded has happened again.
    pub fn ended(&self) -> Option<ReplayEnd> {
        if self.at < self.events.len() {
            return None;
        }
        let line = self.events.last().map_or(1, |(line, _)| *line);
        let goes_on =
            |(name, run): (&String, &ReplayRun)| (!matches!(run, ReplayRun::Ended)).then(|| name.clone());
        let runs: Vec<String> = self.runs.iter().filter_map(goes_on).collect();
        Some(if runs.is_empty() { ReplayEnd::Whole } else { ReplayEnd::CutOff { line, runs } })
    }

    /// Makes a divergence at the next recorded event, for an event that does not come from a module.
    pub(crate) fn differs(&self, replayed: String) -> Divergence {
        let next = self.events.get(self.at);
        Divergence {
            line: next.map(|(line, _)| *line),
            recorded: next.map_or_else(|| "nothing".to_owned(), |(_, event)| shown(event)),
            replayed,
        }
    }
}

/// A form in which events that say the same are equal, also where a value is not equal to itself (NaN).
fn compared(event: &TraceEvent) -> serde_json::Value {
    let mut json = to_json(event);
    if let Some(fields) = json.as_object_mut() {
        fields.remove("timed");
    }
    json
}

fn shown(event: &TraceEvent) -> String {
    let run = &event.run;
    match &event.what {
        TraceKind::Call { op, args } => {
            let args: Vec<_> = args.iter().map(to_tagged).collect();
            format!("{run} calls {op} with {}", serde_json::Value::Array(args))
        }
        TraceKind::Outcome { kind, value, .. } => format!("{run} ends: {kind} {}", to_tagged(value)),
        TraceKind::Cancel { .. } => format!("{run} is cancelled"),
        TraceKind::Start { export, .. } => format!("{run} starts {export}"),
        TraceKind::Woke { op } | TraceKind::Reply { op, .. } => format!("{run} goes on after {op}"),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
