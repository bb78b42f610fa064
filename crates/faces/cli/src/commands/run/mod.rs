//! `millrace run`: runs exports of a WebAssembly module that asks for effects, which are answered by a script, by
//! granted capabilities or by a recording. Results go to stdout, one JSON line per run; the trace goes to stderr.

mod events;
mod grants;
mod guest_bus;
mod plan;
mod record_file;
mod report;
mod signals;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_wasm::capability::Grants;
use millrace_wasm::record::{Recorder, RecordingSettings};
use millrace_wasm::replayed::{ReplayMessage, ReplaySink, Replayer};
use millrace_wasm::trace::{TraceEvent, TraceKind};
use millrace_wasm::{
    Clock, EffectOutcome, Host, HostOptions, Instance, Observer, RunEvent, RunStart, RunsLimits, Value,
};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::commands::json_flag;
use crate::commands::run::events::{EventSender, ReportMessage, event_queue};
use crate::commands::run::grants::Granted;
use crate::commands::run::plan::{Answers, RunPlan};
use crate::commands::run::report::{Results, RunReport};
use crate::commands::run::signals::InterruptSignals;
use crate::failure::Failure;
use crate::log;
use crate::settings::{Config, Scope, args, resolve};

pub(super) fn command() -> Command {
    let file = |name: &'static str| Arg::new(name).long(name).value_name("FILE");
    Command::new("run")
        .about("Run a WebAssembly module whose effects are answered by a script or by granted capabilities")
        .arg(Arg::new("module").value_name("MODULE").required(true).help("A .wasm or .wat file"))
        .arg(
            Arg::new("export")
                .long("export")
                .value_name("NAME")
                .action(ArgAction::Append)
                .help("The function to run; several start several runs on one scheduler [default: main]"),
        )
        .arg(
            Arg::new("arg")
                .long("arg")
                .value_name("JSON")
                .action(ArgAction::Append)
                .help("An argument of every run, in order"),
        )
        .arg(file("script").help("Handlers without code: {\"handlers\":{\"Effect::op\":[REPLY,...]}}"))
        .arg(
            Arg::new("cancel-at")
                .long("cancel-at")
                .value_name("MS")
                .value_parser(value_parser!(u64))
                .help("Cancel every run that has not ended after this time on its clock"),
        )
        .arg(
            Arg::new("trace")
                .long("trace")
                .action(ArgAction::SetTrue)
                .help("Print calls, replies and outcomes to stderr, in order"),
        )
        .arg(file("record").help(
            "Write everything that handlers are asked and answer to this file, which must be new, empty or a recording",
        ))
        .arg(
            file("replay")
                .conflicts_with_all(["export", "arg", "script", "record", "cancel-at"])
                .help(
                    "Answer every effect from a recording, with its settings, and report the first difference from it",
                ),
        )
        .arg(json_flag().help("Print JSON, which results always are"))
        .args(args(&[Scope::Run, Scope::Client, Scope::Store]))
        // The short name is added here only: for other commands it is a setting of the CQRS loop's Memory.
        .mut_arg("run-memory-bytes-max", |arg| arg.visible_alias("memory-bytes-max"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let effective = resolve(matches)?;
    // Programs with a grant may log; the default filter shows their lines.
    log::start(&effective.config, "warn,millrace::guest=info");
    // Before reading any file: a module may come from a pipe that stays silent.
    let mut signals = InterruptSignals::listen()?;
    let plan = RunPlan::of(matches, &effective)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = run_all(plan, &effective.config) => ended,
            () = signals.interrupted() => Err(Failure::Interrupted(None)),
        }
    });
    // A thread may still be waiting for a line of stdin that never comes.
    runtime.shutdown_background();
    ended
}

/// Runs the plan. Must not block its thread, which also waits for signals: other threads compile modules and write
/// events.
async fn run_all(plan: RunPlan, config: &Config) -> Result<(), Failure> {
    // A replay needs no grants: everything is answered from the file.
    let granted = match plan.answers {
        Answers::Replay(_) => Granted::default(),
        Answers::Handlers { .. } => Granted::by(config).await?,
    };
    let started = tokio::task::spawn_blocking(move || start(plan, &granted)).await;
    let running = started.map_err(|error| Failure::Failed(format!("cannot start: {error}")))??;
    // The report sends its result before its thread ends.
    running.ended.await.unwrap_or_else(|_| {
        Err(Failure::Failed("the report has stopped: this is a defect, please report it".into()))
    })
}

/// Runs that are in progress.
struct RunsInProgress {
    /// Kept, because dropping the host or the instance would cancel the runs.
    _host: Host,
    _instance: Instance,
    ended: oneshot::Receiver<Result<(), Failure>>,
}

fn start(plan: RunPlan, granted: &Granted) -> Result<RunsInProgress, Failure> {
    let RunPlan {
        path,
        module: bytes,
        answers,
        settings,
        tick_ms_max,
        script_path,
        cancel_at_ms,
        trace,
        record,
    } = plan;
    let broken = |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let (events, told) = event_queue();
    let mut report = RunReport {
        trace,
        recorder: None,
        line_is_open: granted.line_is_open.clone(),
        runs_left: None,
        results: Results::default(),
    };
    let host = |clock, observer| {
        let limits = RunsLimits { max_internal_steps_per_tick: settings.budget, ..RunsLimits::default() };
        let (seed, observer) = (settings.seed, Some(observer));
        let options = HostOptions { clock, limits, tick_ms_max, seed, observer, ..HostOptions::default() };
        Host::new(options).map_err(|error| Failure::Failed(error.to_string()))
    };
    match answers {
        Answers::Handlers { script, starts } => {
            report.runs_left = Some(starts.len());
            let args = starts.iter().map(|(_, args)| args.clone()).collect();
            let tells_all = trace || record.is_some();
            let observer = observer(events, tells_all, args, granted.grants.clone());
            let host = host(settings.clock, observer)?;
            let module = host.load(&bytes).map_err(|error| broken(&error))?;
            let mut handlers = module.handlers();
            for name in script.into_iter().flat_map(|script| script.register(&mut handlers)) {
                tracing::warn!("no operation of the module ends with {name}, which the script names");
            }
            granted.grants.offer_to(&mut handlers);
            let instance = host.instantiate(&module, handlers, &settings.instance);
            let instance = instance.map_err(|error| broken(&error))?;
            // Open the file only now that the module is known to be good: opening it erases an older recording.
            if let Some(record) = &record {
                let inputs: Vec<&Path> =
                    std::iter::once(path.as_path()).chain(script_path.as_deref()).collect();
                report.recorder = Some(recorder(record, &inputs, &sha256, &settings)?);
            }
            let starts = starts.into_iter().map(|(export, args)| RunStart {
                limits: settings.run.clone(),
                cancel_after_ms: cancel_at_ms,
                ..RunStart::new(export, args)
            });
            instance.start_all(starts.collect()).map_err(|error| broken(&error))?;
            Ok(RunsInProgress { _host: host, _instance: instance, ended: report.start(told)? })
        }
        Answers::Replay(recording) => {
            if recording.module_sha256() != sha256 {
                tracing::warn!("the recording is of another module: it may differ from this one's replay");
            }
            let replayer = Replayer::new(recording, replay_sink(events));
            // Time is not replayed: no run ever waits for this clock.
            let host = host(Clock::Virtual { system_start_ms: 0 }, replayer.observer())?;
            let module = host.load(&bytes).map_err(|error| broken(&error))?;
            let mut handlers = module.handlers();
            replayer.register(&mut handlers);
            let instance = host.instantiate(&module, handlers, &settings.instance);
            let instance = instance.map_err(|error| broken(&error))?;
            let ended = report.start(told)?;
            let runs = instance.clone();
            replayer.start(&settings.run, Box::new(move |start| runs.start_run(start)));
            Ok(RunsInProgress { _host: host, _instance: instance, ended })
        }
    }
}

fn recorder(
    path: &Path,
    inputs: &[&Path],
    sha256: &str,
    settings: &RecordingSettings,
) -> Result<Recorder<BufWriter<File>>, Failure> {
    let file = BufWriter::new(record_file::create(path, inputs)?);
    let recorder = Recorder::new(file, sha256, settings);
    recorder.map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))
}

/// Returns an observer that sends the host's events to the report: all of them, or only outcomes. `args` are the
/// arguments of the runs in the order of their start, which the host's events do not contain.
fn observer(events: EventSender, tells_all: bool, args: Vec<Vec<Value>>, grants: Grants) -> Observer {
    let mut args = args.into_iter();
    Box::new(move |event: RunEvent<'_>| {
        let trap = match event {
            RunEvent::Ended { run, outcome } => {
                grants.release(run);
                match outcome {
                    EffectOutcome::Failed(failure) => failure.trap().cloned(),
                    EffectOutcome::Value(_) | EffectOutcome::Cancelled { .. } => None,
                }
            }
            _ if tells_all => None,
            _ => return,
        };
        let mut event = TraceEvent::from(event);
        if let TraceKind::Start { args: told, .. } = &mut event.what {
            *told = args.next().unwrap_or_default();
        }
        events.send(ReportMessage::Event { event, trap });
    })
}

fn replay_sink(events: EventSender) -> ReplaySink {
    Box::new(move |replayed| {
        events.send(match replayed {
            ReplayMessage::Event { event, trap } => ReportMessage::Event { event, trap },
            ReplayMessage::End(end) => ReportMessage::ReplayEnded(end),
        });
    })
}
