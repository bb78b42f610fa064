//! Recordings: every answer of handlers and every request of modules, as lines of JSON. `replay.rs` reads them back.
//!
//! The first line is `{"recording":2,"module":SHA256,"settings":{...}}`, with the settings that decide how the runs go
//! (`record/settings.rs`); version 1 had none. Each further line is one [`TraceEvent`] with its run, its values as in
//! `tagged.rs`:
//!
//! ```json
//! {"run":"run_1","start":"main","args":[]}
//! {"run":"run_1","call":"src::m::Ask.number","args":[20]}
//! {"run":"run_1","reply":"src::m::Ask.number","do":"resume","value":40}
//! {"run":"run_1","outcome":"value","value":42}
//! ```
//!
//! A recording is checked as it is read (`record/order.rs`): an event that cannot follow those before it is refused.

mod order;
mod settings;

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

pub use self::order::OrderProblem;
use self::order::RunStages;
pub use self::settings::RecordingSettings;
use crate::script::ScriptAction;
use crate::tagged::{TaggedError, from_tagged, to_tagged};
use crate::trace::{TraceEvent, TraceKind};
use crate::value::Value;

/// The version that this program writes.
const VERSION: u64 = 2;
/// Recordings of this version have no settings, and do not mark runs that the clock ended.
const VERSION_WITHOUT_SETTINGS: u64 = 1;
/// Bytes of a recording that is read whole: programs that read files refuse a longer one.
pub const RECORDING_BYTES_MAX: usize = 1 << 30;
/// Events of a recording that is read: a longer one is refused.
pub const RECORDING_EVENTS_MAX: usize = 10_000_000;

/// Whether a line is the head of a recording, of any version.
pub fn is_recording_head(line: &str) -> bool {
    let head: Option<Json> = serde_json::from_str(line).ok();
    head.is_some_and(|head| head.get("recording").is_some_and(Json::is_u64))
}

/// Writes events as they happen. The file is complete up to the last event that was written.
#[derive(Debug)]
pub struct Recorder<W> {
    out: W,
}

impl<W: Write> Recorder<W> {
    /// Begins a recording of a module with this SHA-256, in hexadecimal, whose runs have these settings.
    ///
    /// # Errors
    ///
    /// Errors of the writer.
    pub fn new(mut out: W, module_sha256: &str, settings: &RecordingSettings) -> io::Result<Recorder<W>> {
        let settings = settings.to_json();
        line(&mut out, &json!({ "recording": VERSION, "module": module_sha256, "settings": settings }))?;
        Ok(Recorder { out })
    }

    /// The writer, to which everything so far was written.
    pub fn writer(&self) -> &W {
        &self.out
    }

    /// Adds an event.
    ///
    /// # Errors
    ///
    /// Errors of the writer.
    pub fn add(&mut self, event: &TraceEvent) -> io::Result<()> {
        line(&mut self.out, &to_json(event))
    }

    /// Writes out the events that a buffer holds. Call it before anybody can learn of these events in another way, and
    /// whenever there is nothing else to do: a crash loses what is buffered.
    ///
    /// # Errors
    ///
    /// Errors of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn line(out: &mut impl Write, json: &Json) -> io::Result<()> {
    let mut text = json.to_string();
    text.push('\n');
    out.write_all(text.as_bytes())
}

/// The line of an event. Equal events have equal lines, also where a value is not equal to itself (NaN).
pub(crate) fn to_json(event: &TraceEvent) -> Json {
    let run = &event.run;
    let list = |values: &[Value]| Json::Array(values.iter().map(to_tagged).collect());
    match &event.what {
        TraceKind::Start { export, args } => json!({ "run": run, "start": export, "args": list(args) }),
        TraceKind::Call { op, args } => json!({ "run": run, "call": op, "args": list(args) }),
        TraceKind::Woke { op } => json!({ "run": run, "woke": op }),
        TraceKind::Reply { op, action, value, error: None } => {
            json!({ "run": run, "reply": op, "do": action.as_str(), "value": to_tagged(value) })
        }
        TraceKind::Reply { op, action, value, error: Some(error) } => {
            json!({ "run": run, "reply": op, "do": action.as_str(), "value": to_tagged(value), "error": error })
        }
        TraceKind::Cancel { accepted } => json!({ "run": run, "cancel": accepted }),
        TraceKind::Outcome { kind, value, timed: false } => {
            json!({ "run": run, "outcome": kind, "value": to_tagged(value) })
        }
        TraceKind::Outcome { kind, value, timed: true } => {
            json!({ "run": run, "outcome": kind, "value": to_tagged(value), "timed": true })
        }
    }
}

/// A complete recording, whose events can follow one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    module_sha256: String,
    settings: Option<RecordingSettings>,
    /// With the number of their line, from 1.
    events: Vec<(usize, TraceEvent)>,
}

/// Why a text is not a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("line 1 is no head of a recording, such as {{\"recording\":{VERSION},\"module\":\"...\"}}")]
    NoHead,
    #[error(
        "the recording has version {found}; this program reads versions {VERSION_WITHOUT_SETTINGS} to {VERSION}"
    )]
    Version { found: u64 },
    #[error("line 1: the setting {name} is {found}, which is not one that a recording has")]
    Setting { name: &'static str, found: String },
    #[error("line {line} is not valid JSON: {source}")]
    NotJson { line: usize, source: serde_json::Error },
    #[error("line {line} is no event of a recording: {problem}")]
    Event { line: usize, problem: EventProblem },
    #[error("line {line} cannot follow the lines before it: {problem}")]
    Order { line: usize, problem: OrderProblem },
    #[error("the recording has more than {RECORDING_EVENTS_MAX} events")]
    TooLong,
}

/// A mistake in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventProblem {
    #[error("it must be an object with \"run\" and one of start, call, woke, reply, cancel or outcome")]
    Kind,
    #[error("\"{0}\" is missing or of another type")]
    Field(&'static str),
    #[error(transparent)]
    Value(#[from] TaggedError),
}

impl Recording {
    /// Reads a recording. A last line without its end, as a crash leaves it, is left out.
    ///
    /// # Errors
    ///
    /// [`RecordingError`] names the line.
    pub fn parse(text: &str) -> Result<Recording, RecordingError> {
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut lines = (1..).zip(whole.lines());
        let head: Option<Json> = lines.next().and_then(|(_, line)| serde_json::from_str(line).ok());
        let head = head.ok_or(RecordingError::NoHead)?;
        let (is_old, settings) = match head.get("recording").and_then(Json::as_u64) {
            Some(VERSION) => (false, Some(RecordingSettings::from_head(&head)?)),
            Some(VERSION_WITHOUT_SETTINGS) => (true, None),
            Some(found) => return Err(RecordingError::Version { found }),
            None => return Err(RecordingError::NoHead),
        };
        let module = head.get("module").and_then(Json::as_str).ok_or(RecordingError::NoHead)?;
        let mut events = Vec::new();
        let mut stages = RunStages::default();
        for (line, text) in lines {
            if events.len() == RECORDING_EVENTS_MAX {
                return Err(RecordingError::TooLong);
            }
            let json: Json =
                serde_json::from_str(text).map_err(|source| RecordingError::NotJson { line, source })?;
            let mut event = from_json(&json).map_err(|problem| RecordingError::Event { line, problem })?;
            if is_old {
                mark_timed(&mut event);
            }
            stages.follow(&event).map_err(|problem| RecordingError::Order { line, problem })?;
            events.push((line, event));
        }
        Ok(Recording { module_sha256: module.to_owned(), settings, events })
    }

    pub fn module_sha256(&self) -> &str {
        &self.module_sha256
    }

    /// The settings that the runs had; `None` in recordings of version 1.
    pub fn settings(&self) -> Option<&RecordingSettings> {
        self.settings.as_ref()
    }

    /// Events with the number of their line, from 1.
    pub fn events(&self) -> &[(usize, TraceEvent)] {
        &self.events
    }

    pub(crate) fn into_events(self) -> Vec<(usize, TraceEvent)> {
        self.events
    }
}

/// Finds runs that the clock ended by the text of their failure: version 1 has no other mark.
fn mark_timed(event: &mut TraceEvent) {
    if let TraceKind::Outcome { kind, value, timed } = &mut event.what {
        let text = value.as_str().filter(|_| kind == "failed").unwrap_or_default();
        *timed = text.starts_with("the run did not end by its deadline, ")
            || (text.starts_with("the guest ran for more than ") && text.ends_with("(step_wall_ms_max)"));
    }
}

const OUTCOME_KINDS: [&str; 3] = ["value", "failed", "cancelled"];

fn from_json(json: &Json) -> Result<TraceEvent, EventProblem> {
    let fields = json.as_object().ok_or(EventProblem::Kind)?;
    let run = text(fields, "run")?;
    let what = if fields.contains_key("start") {
        TraceKind::Start { export: text(fields, "start")?, args: values(fields)? }
    } else if fields.contains_key("call") {
        TraceKind::Call { op: text(fields, "call")?, args: values(fields)? }
    } else if fields.contains_key("woke") {
        TraceKind::Woke { op: text(fields, "woke")? }
    } else if fields.contains_key("reply") {
        let action = ScriptAction::parse(&text(fields, "do")?).ok_or(EventProblem::Field("do"))?;
        let error = fields.get("error").and_then(Json::as_str).map(str::to_owned);
        TraceKind::Reply { op: text(fields, "reply")?, action, value: value(fields, "value")?, error }
    } else if fields.contains_key("cancel") {
        let accepted = fields["cancel"].as_bool().ok_or(EventProblem::Field("cancel"))?;
        TraceKind::Cancel { accepted }
    } else if fields.contains_key("outcome") {
        let kind = text(fields, "outcome")?;
        if !OUTCOME_KINDS.contains(&kind.as_str()) {
            return Err(EventProblem::Field("outcome"));
        }
        let timed = match fields.get("timed") {
            None => false,
            Some(timed) => timed.as_bool().ok_or(EventProblem::Field("timed"))?,
        };
        TraceKind::Outcome { kind, value: value(fields, "value")?, timed }
    } else {
        return Err(EventProblem::Kind);
    };
    Ok(TraceEvent { run, what })
}

fn text(fields: &Map<String, Json>, name: &'static str) -> Result<String, EventProblem> {
    fields.get(name).and_then(Json::as_str).map(str::to_owned).ok_or(EventProblem::Field(name))
}

fn value(fields: &Map<String, Json>, name: &'static str) -> Result<Value, EventProblem> {
    Ok(from_tagged(fields.get(name).unwrap_or(&Json::Null))?)
}

fn values(fields: &Map<String, Json>) -> Result<Vec<Value>, EventProblem> {
    let list = fields.get("args").and_then(Json::as_array).ok_or(EventProblem::Field("args"))?;
    Ok(list.iter().map(from_tagged).collect::<Result<_, _>>()?)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
