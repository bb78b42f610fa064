//! Recordings: everything that handlers said and modules asked, as lines of JSON. `replay.rs` reads them back.
//!
//! The first line is `{"recording":1,"module":SHA256}`; each further line is one [`TraceEvent`] with its run, its values as
//! in `tagged.rs`:
//!
//! ```json
//! {"run":"run_1","start":"main","args":[]}
//! {"run":"run_1","call":"src::m::Ask.number","args":[20]}
//! {"run":"run_1","reply":"src::m::Ask.number","do":"resume","value":40}
//! {"run":"run_1","outcome":"value","value":42}
//! ```

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use crate::script::ScriptAction;
use crate::tagged::{TaggedError, from_tagged, to_tagged};
use crate::trace::{TraceEvent, TraceKind};
use crate::value::Value;

/// The version that this program writes and reads.
const VERSION: u64 = 1;
/// Bytes of a recording that is read whole: a longer one is refused by those who read files.
pub const RECORDING_BYTES_MAX: usize = 1 << 30;
/// Events of a recording that is read: a longer one is refused.
pub const RECORDING_EVENTS_MAX: usize = 10_000_000;

/// Writes events as they happen. The file is whole up to the last event that was written.
#[derive(Debug)]
pub struct Recorder<W> {
    out: W,
}

impl<W: Write> Recorder<W> {
    /// Begins a recording of a module with this SHA-256, in hexadecimal.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn new(mut out: W, module_sha256: &str) -> io::Result<Recorder<W>> {
        line(&mut out, &json!({ "recording": VERSION, "module": module_sha256 }))?;
        Ok(Recorder { out })
    }

    /// Adds an event.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn add(&mut self, event: &TraceEvent) -> io::Result<()> {
        line(&mut self.out, &to_json(event))
    }

    /// Writes out what a buffer holds.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn finish(&mut self) -> io::Result<()> {
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
        TraceKind::Outcome { kind, value } => {
            json!({ "run": run, "outcome": kind, "value": to_tagged(value) })
        }
    }
}

/// A recording that was read whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub module_sha256: String,
    /// With the number of their line, from 1.
    pub events: Vec<(usize, TraceEvent)>,
}

/// A text that is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("line 1 is no head of a recording, such as {{\"recording\":{VERSION},\"module\":\"...\"}}")]
    NoHead,
    #[error("the recording has version {found}; this program reads version {VERSION}")]
    Version { found: u64 },
    #[error("line {line} is not valid JSON: {source}")]
    NotJson { line: usize, source: serde_json::Error },
    #[error("line {line} is no event of a recording: {problem}")]
    Event { line: usize, problem: EventProblem },
    #[error("the recording has more than {RECORDING_EVENTS_MAX} events")]
    TooLong,
}

/// What is wrong with one line.
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
        match head.get("recording").and_then(Json::as_u64) {
            Some(VERSION) => {}
            Some(found) => return Err(RecordingError::Version { found }),
            None => return Err(RecordingError::NoHead),
        }
        let module = head.get("module").and_then(Json::as_str).ok_or(RecordingError::NoHead)?;
        let mut events = Vec::new();
        for (number, line) in lines {
            if events.len() == RECORDING_EVENTS_MAX {
                return Err(RecordingError::TooLong);
            }
            let json: Json = serde_json::from_str(line)
                .map_err(|source| RecordingError::NotJson { line: number, source })?;
            let event =
                from_json(&json).map_err(|problem| RecordingError::Event { line: number, problem })?;
            events.push((number, event));
        }
        Ok(Recording { module_sha256: module.to_owned(), events })
    }
}

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
        TraceKind::Outcome { kind: text(fields, "outcome")?, value: value(fields, "value")? }
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
mod tests {
    use super::*;

    fn events() -> Vec<TraceEvent> {
        let event = |what| TraceEvent { run: "run_1".into(), what };
        let op = || "m::E.o".to_owned();
        vec![
            event(TraceKind::Start { export: "main".into(), args: vec![1.into()] }),
            event(TraceKind::Call { op: op(), args: vec![Value::F64(2.0)] }),
            event(TraceKind::Woke { op: op() }),
            event(TraceKind::Reply {
                op: op(),
                action: ScriptAction::Resume,
                value: Value::Bin(vec![1]),
                error: None,
            }),
            event(TraceKind::Reply {
                op: op(),
                action: ScriptAction::Throw,
                value: Value::Nil,
                error: Some("no".into()),
            }),
            event(TraceKind::Cancel { accepted: true }),
            event(TraceKind::Outcome { kind: "cancelled".into(), value: "why".into() }),
        ]
    }

    fn recorded() -> String {
        let mut recorder = Recorder::new(Vec::new(), "abc").unwrap();
        for event in events() {
            recorder.add(&event).unwrap();
        }
        recorder.finish().unwrap();
        String::from_utf8(recorder.out).unwrap()
    }

    #[test]
    fn what_was_written_is_read_back() {
        let recording = Recording::parse(&recorded()).unwrap();
        assert_eq!(recording.module_sha256, "abc");
        let read: Vec<_> = recording.events.into_iter().map(|(_, event)| event).collect();
        assert_eq!(read, events());
    }

    #[test]
    fn a_line_that_a_crash_cut_off_is_left_out() {
        let text = recorded();
        let cut = &text[..text.len() - 5];
        assert_eq!(Recording::parse(cut).unwrap().events.len(), events().len() - 1);
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        let head = "{\"recording\":1,\"module\":\"\"}\n";
        for (text, part) in [
            (String::new(), "line 1"),
            ("{}\n".to_owned(), "line 1"),
            ("{\"recording\":9,\"module\":\"\"}\n".to_owned(), "version 9"),
            (format!("{head}x\n"), "line 2 is not valid JSON"),
            (format!("{head}{{\"run\":\"run_1\"}}\n"), "line 2 is no event"),
            (format!("{head}{{\"run\":\"run_1\",\"call\":\"e\"}}\n"), "\"args\" is missing"),
            (format!("{head}{{\"run\":\"r\",\"reply\":\"e\",\"do\":\"x\"}}\n"), "\"do\""),
            (format!("{head}{{\"run\":\"r\",\"outcome\":\"value\",\"value\":{{\"f64\":[]}}}}\n"), "NaN"),
        ] {
            let error = Recording::parse(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
}
