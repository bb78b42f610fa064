//! What the command line of `millrace run` asks for: files read, arguments parsed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use millrace_wasm::record::{RECORDING_BYTES_MAX, Recording};
use millrace_wasm::script::Script;
use millrace_wasm::trace::TraceKind;
use millrace_wasm::{MODULE_BYTES_MAX, Value, from_tagged};

use crate::commands::text;
use crate::failure::Failure;

/// A script of more bytes is refused.
const SCRIPT_BYTES_MAX: usize = 64 << 20;

pub(super) struct Plan {
    pub(super) path: PathBuf,
    pub(super) module: Vec<u8>,
    /// Exports and their arguments, in the order of their start.
    pub(super) starts: Vec<(String, Vec<Value>)>,
    pub(super) answers: Answers,
    pub(super) cancel_at_ms: Option<u64>,
    pub(super) trace: bool,
    pub(super) record: Option<PathBuf>,
}

/// Where the answers come from.
pub(super) enum Answers {
    /// A script, if there is one, and what is granted.
    Script(Option<Script>),
    Replay(Recording),
}

impl Plan {
    pub(super) fn of(matches: &ArgMatches) -> Result<Plan, Failure> {
        let path = PathBuf::from(text(matches, "module").unwrap_or_default());
        let module = read(&path, MODULE_BYTES_MAX)?;
        let (answers, starts) = match text(matches, "replay") {
            Some(file) => {
                let recording = recording(Path::new(file))?;
                let starts = starts_of(&recording);
                if starts.is_empty() {
                    return Err(Failure::Usage(format!("{file}: the recording starts no run")));
                }
                (Answers::Replay(recording), starts)
            }
            None => (Answers::Script(script(matches)?), starts(matches)?),
        };
        Ok(Plan {
            path,
            module,
            starts,
            answers,
            cancel_at_ms: matches.get_one::<u64>("cancel-at").copied(),
            trace: matches.get_flag("trace"),
            record: text(matches, "record").map(PathBuf::from),
        })
    }
}

fn starts(matches: &ArgMatches) -> Result<Vec<(String, Vec<Value>)>, Failure> {
    let texts = |name| matches.get_many::<String>(name).into_iter().flatten();
    let args = texts("arg").map(|text| {
        let json = serde_json::from_str(text).map_err(|error| {
            Failure::Usage(format!(
                "--arg is {text:?}: not valid JSON: {error}; a string needs its quotes: '\"text\"'"
            ))
        })?;
        from_tagged(&json).map_err(|error| Failure::Usage(format!("--arg is {text:?}: {error}")))
    });
    let args: Vec<Value> = args.collect::<Result<_, _>>()?;
    let exports: Vec<String> = texts("export").cloned().collect();
    let exports = if exports.is_empty() { vec!["main".to_owned()] } else { exports };
    Ok(exports.into_iter().map(|export| (export, args.clone())).collect())
}

fn starts_of(recording: &Recording) -> Vec<(String, Vec<Value>)> {
    let starts = recording.events.iter().filter_map(|(_, event)| match &event.what {
        TraceKind::Start { export, args } => Some((export.clone(), args.clone())),
        _ => None,
    });
    starts.collect()
}

fn script(matches: &ArgMatches) -> Result<Option<Script>, Failure> {
    let Some(file) = text(matches, "script") else { return Ok(None) };
    let text = read_text(Path::new(file), SCRIPT_BYTES_MAX)?;
    let script = Script::parse(&text).map_err(|error| Failure::Usage(format!("{file}: {error}")))?;
    Ok(Some(script))
}

fn recording(path: &Path) -> Result<Recording, Failure> {
    let text = read_text(path, RECORDING_BYTES_MAX)?;
    Recording::parse(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

fn read_text(path: &Path, bytes_max: usize) -> Result<String, Failure> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|_| Failure::Usage(format!("{} must be UTF-8", path.display())))
}

/// The whole file. A module that is too long is left to the host, which says so.
fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > bytes_max {
        return Err(Failure::Usage(format!("{} has more than {bytes_max} bytes", path.display())));
    }
    Ok(bytes)
}
