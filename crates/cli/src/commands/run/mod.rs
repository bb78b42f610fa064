//! `millrace run`: runs exports of a WebAssembly module that asks for effects, answered by a script, by granted capabilities
//! or by a recording. Results go to stdout, one JSON line per run; the trace goes to stderr.

mod grants;
mod guest_bus;
mod plan;
mod report;

use std::sync::{Arc, Mutex, PoisonError};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_wasm::capability::Grants;
use millrace_wasm::replayed::{CancelRun, Replayer};
use millrace_wasm::trace::{TraceEvent, TraceKind};
use millrace_wasm::{
    Clock, EffectOutcome, Host, HostOptions, InstanceLimits, Observer, RunEvent, RunHandle, RunLimits,
    RunStart, RunsLimits,
};
use tokio::sync::mpsc;

use crate::commands::connect::interrupted;
use crate::commands::json_flag;
use crate::commands::run::grants::Granted;
use crate::commands::run::plan::{Answers, Plan};
use crate::commands::run::report::Report;
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
        .arg(file("record").help("Write everything that handlers are asked and answer to this file"))
        .arg(
            file("replay")
                .conflicts_with_all(["export", "arg", "script", "record", "cancel-at"])
                .help("Answer every effect from a recording, and report the first difference from it"),
        )
        .arg(json_flag().help("Print JSON, which results always are"))
        .args(args(&[Scope::Run, Scope::Client, Scope::Store]))
        // Elsewhere the short name is that of the CQRS loop's Memory.
        .mut_arg("run-memory-bytes-max", |arg| arg.visible_alias("memory-bytes-max"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let config = resolve(matches)?.config;
    // Programs may log by a grant, and then their lines are wanted.
    log::start(&config, "warn,millrace::guest=info");
    let plan = Plan::of(matches)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = run_all(plan, &config) => ended,
            () = interrupted() => Err(Failure::Interrupted(None)),
        }
    });
    // A thread may still be waiting for a line of stdin that never comes.
    runtime.shutdown_background();
    ended
}

async fn run_all(plan: Plan, config: &Config) -> Result<(), Failure> {
    // A replay needs no grants: everything is answered from the file.
    let granted = match plan.answers {
        Answers::Replay(_) => Granted::default(),
        Answers::Script(_) => Granted::by(config).await?,
    };
    let mut report = Report::new(&plan, granted.line_is_open.clone())?;
    let (events, mut heard) = mpsc::unbounded_channel();
    let runs: Handles = Arc::default();
    let (script, recording) = match plan.answers {
        Answers::Script(script) => (script, None),
        Answers::Replay(recording) => (None, Some(recording)),
    };
    let replayer = recording.map(|recording| Replayer::new(recording, cancel_by(&runs)));
    let observer = observer(events, replayer.clone(), granted.grants.clone());
    let host =
        Host::new(host_options(config, observer)).map_err(|error| Failure::Failed(error.to_string()))?;
    let broken = |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", plan.path.display()));
    let module = host.load(&plan.module).map_err(|error| broken(&error))?;
    let mut handlers = module.handlers();
    if let Some(script) = script {
        for name in script.register(&mut handlers) {
            tracing::warn!("no operation of the module ends with {name}, which the script names");
        }
    }
    granted.grants.offer_to(&mut handlers);
    if let Some(replayer) = &replayer {
        replayer.register(&mut handlers);
    }
    let instance =
        host.instantiate(&module, handlers, &instance_limits(config)).map_err(|error| broken(&error))?;
    let starts = plan.starts.iter().map(|(export, args)| {
        let mut start = RunStart::new(export.clone(), args.clone());
        start.limits = run_limits(config);
        start.cancel_after_ms = plan.cancel_at_ms;
        start
    });
    let count = plan.starts.len();
    {
        // Held until all are known: a replay may want to cancel the first before the last is there.
        let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs = instance.start_all(starts.collect()).map_err(|error| broken(&error))?;
    }
    report.hear_all(&mut heard, count).await?;
    if let Some(divergence) = replayer.and_then(|replayer| replayer.divergence()) {
        return Err(Failure::Failed(divergence.to_string()));
    }
    report.end()
}

/// What the host's thread tells the command, in order.
struct Heard {
    event: TraceEvent,
    outcome: Option<EffectOutcome>,
}

type Handles = Arc<Mutex<Vec<RunHandle>>>;

fn cancel_by(runs: &Handles) -> CancelRun {
    let runs = runs.clone();
    Arc::new(move |name, reason| {
        let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.iter().find(|run| run.id().to_string() == name) {
            run.cancel(reason);
        }
    })
}

fn observer(events: mpsc::UnboundedSender<Heard>, replayer: Option<Replayer>, grants: Grants) -> Observer {
    Box::new(move |event: RunEvent<'_>| {
        let outcome = match event {
            RunEvent::Ended { run, outcome } => {
                grants.release(run);
                Some(outcome.clone())
            }
            _ => None,
        };
        let event = TraceEvent::from(event);
        if let (Some(replayer), TraceKind::Outcome { kind, value }) = (&replayer, &event.what) {
            replayer.outcome(&event.run, kind, value.clone());
        }
        // Nobody listens any more if the command was interrupted.
        let _ = events.send(Heard { event, outcome });
    })
}

fn host_options(config: &Config, observer: Observer) -> HostOptions {
    let budget = usize::try_from(config.run.budget).unwrap_or(usize::MAX);
    HostOptions {
        clock: match config.run.clock.as_str() {
            "virtual" => Clock::Virtual { system_start_ms: 0 },
            _ => Clock::Real,
        },
        limits: RunsLimits { max_internal_steps_per_tick: budget, ..RunsLimits::default() },
        seed: config.run.seed.parse().ok(),
        observer: Some(observer),
        ..HostOptions::default()
    }
}

fn instance_limits(config: &Config) -> InstanceLimits {
    InstanceLimits {
        buffer_bytes: u32::try_from(config.run.buffer).ok().filter(|bytes| *bytes > 0),
        memory_bytes_max: usize::try_from(config.run.memory_bytes_max).unwrap_or(usize::MAX),
        ..InstanceLimits::default()
    }
}

fn run_limits(config: &Config) -> RunLimits {
    RunLimits {
        step_fuel_max: config.run.step_fuel_max,
        step_wall_ms_max: config.run.step_ms_max,
        wall_ms_max: Some(config.run.wall_ms_max).filter(|ms| *ms > 0),
    }
}
