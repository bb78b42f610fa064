//! The plan of `millrace run` from its command line: files read, arguments parsed, settings of the runs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use millrace_wasm::record::{RECORDING_BYTES_MAX, Recording, RecordingSettings};
use millrace_wasm::script::Script;
use millrace_wasm::{Clock, InstanceLimits, MODULE_BYTES_MAX, RunLimits, Value, check_numbers, from_tagged};

use crate::commands::text;
use crate::failure::Failure;
use crate::settings::{Config, Effective, SettingSource};

/// The largest script in bytes; a larger one is refused.
const SCRIPT_BYTES_MAX: usize = 64 << 20;

pub(super) struct RunPlan {
    pub(super) path: PathBuf,
    pub(super) module: Vec<u8>,
    pub(super) answers: Answers,
    /// The settings of the command, or those of the recording that is replayed.
    pub(super) settings: RecordingSettings,
    pub(super) tick_ms_max: u64,
    pub(super) script_path: Option<PathBuf>,
    pub(super) cancel_at_ms: Option<u64>,
    pub(super) trace: bool,
    pub(super) record: Option<PathBuf>,
}

/// The source of the answers to effects.
pub(super) enum Answers {
    /// A script, if there is one, and the granted capabilities; with the exports to start and their arguments, in
    /// order.
    Handlers {
        script: Option<Script>,
        starts: Vec<(String, Vec<Value>)>,
    },
    Replay(Recording),
}

impl RunPlan {
    pub(super) fn of(matches: &ArgMatches, effective: &Effective) -> Result<RunPlan, Failure> {
        let path = PathBuf::from(text(matches, "module").unwrap_or_default());
        let module = read(&path, MODULE_BYTES_MAX)?;
        let given = settings(&effective.config);
        let script_path = text(matches, "script").map(PathBuf::from);
        let (answers, settings) = match text(matches, "replay") {
            Some(file) => {
                let recording = recording(Path::new(file))?;
                if recording.events().is_empty() {
                    return Err(Failure::Usage(format!("{file}: the recording starts no run")));
                }
                let settings = settings_of(&recording, given, effective)
                    .map_err(|problem| Failure::Usage(format!("{file}: {problem}")))?;
                (Answers::Replay(recording), settings)
            }
            None => {
                let script = script_path.as_deref().map(script).transpose()?;
                (Answers::Handlers { script, starts: starts(matches)? }, given)
            }
        };
        Ok(RunPlan {
            path,
            module,
            answers,
            settings,
            tick_ms_max: effective.config.run.tick_ms_max,
            script_path,
            cancel_at_ms: matches.get_one::<u64>("cancel-at").copied(),
            trace: matches.get_flag("trace"),
            record: text(matches, "record").map(PathBuf::from),
        })
    }
}

fn settings(config: &Config) -> RecordingSettings {
    RecordingSettings {
        clock: match config.run.clock.as_str() {
            "virtual" => Clock::Virtual { system_start_ms: 0 },
            _ => Clock::Real,
        },
        seed: config.run.seed.parse().ok(),
        budget: usize::try_from(config.run.budget).unwrap_or(usize::MAX),
        instance: InstanceLimits {
            buffer_bytes: u32::try_from(config.run.buffer).ok().filter(|bytes| *bytes > 0),
            memory_bytes_max: usize::try_from(config.run.memory_bytes_max).unwrap_or(usize::MAX),
            step_fuel_max: config.run.step_fuel_max,
            step_wall_ms_max: config.run.step_ms_max,
            ..InstanceLimits::default()
        },
        run: RunLimits {
            step_fuel_max: config.run.step_fuel_max,
            step_wall_ms_max: config.run.step_ms_max,
            wall_ms_max: Some(config.run.wall_ms_max).filter(|ms| *ms > 0),
        },
    }
}

/// A flag of a replay says something else than the recording.
#[derive(Debug, thiserror::Error)]
#[error(
    "--{name} is {given}, but the runs were recorded with {recorded}: leave the flag out, a replay takes the recorded \
     settings"
)]
struct OtherFlag {
    name: String,
    given: serde_json::Value,
    recorded: serde_json::Value,
}

/// Returns the settings of a replay, which are those of the recording. A flag with another value is refused, because it
/// would have no effect. Recordings of the first version contain no settings; their replay uses those of the command.
fn settings_of(
    recording: &Recording,
    given: RecordingSettings,
    effective: &Effective,
) -> Result<RecordingSettings, OtherFlag> {
    let Some(recorded) = recording.settings() else { return Ok(given) };
    let (given, then) = (given.to_json(), recorded.to_json());
    let flags = given.as_object().into_iter().flatten().filter(|(name, _)| {
        *effective.source(name) == SettingSource::Flag && given.get(name.as_str()) != then.get(name.as_str())
    });
    match flags.into_iter().next() {
        Some((name, given)) => Err(OtherFlag {
            name: name.clone(),
            given: given.clone(),
            recorded: then.get(name).cloned().unwrap_or_default(),
        }),
        None => Ok(recorded.clone()),
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
        check_numbers(text).map_err(|error| Failure::Usage(format!("--arg is {text:?}: {error}")))?;
        from_tagged(&json).map_err(|error| Failure::Usage(format!("--arg is {text:?}: {error}")))
    });
    let args: Vec<Value> = args.collect::<Result<_, _>>()?;
    let exports: Vec<String> = texts("export").cloned().collect();
    let exports = if exports.is_empty() { vec!["main".to_owned()] } else { exports };
    Ok(exports.into_iter().map(|export| (export, args.clone())).collect())
}

fn script(path: &Path) -> Result<Script, Failure> {
    let text = read_text(path, SCRIPT_BYTES_MAX)?;
    Script::parse(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

fn recording(path: &Path) -> Result<Recording, Failure> {
    let text = read_text(path, RECORDING_BYTES_MAX)?;
    Recording::parse(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

fn read_text(path: &Path, bytes_max: usize) -> Result<String, Failure> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|_| Failure::Usage(format!("{} must be UTF-8", path.display())))
}

/// Reads the whole file. Files of more than `bytes_max` bytes are refused.
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
