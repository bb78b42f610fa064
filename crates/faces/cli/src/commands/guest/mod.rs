//! `millrace guest`: runs a wasm32 module against zABI 2.5, with the capabilities that the command line grants. The
//! guest uses the command's standard streams, and the guest's exit code becomes the command's.

mod grants;
mod server_bus;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use millrace_model::Group;
use millrace_wasm::MODULE_BYTES_MAX;
use millrace_wasm::guest_process::{
    GuestCompiler, GuestFailure, GuestLimits, GuestModule, GuestOutcome, GuestProcess,
};
use millrace_zabi::{BusPort, Capability, CapsListForm, LocalBus, ProcessOptions, StandardStreams};
use tokio::time::timeout;

use crate::commands::connect::interrupted;
use crate::commands::guest::server_bus::ServerBus;
use crate::commands::{descriptors, file_size, text};
use crate::failure::Failure;
use crate::log;
use crate::settings::{Config, Effective, Scope, SettingSource, args, resolve};

/// How long a guest that was told to stop may take to release its resources. A guest takes longer only while it blocks
/// in a standard stream; then the end of this process ends it.
const STOP_MAX: Duration = Duration::from_secs(2);

/// The exit code if `main` returns a number that is no exit code.
const CODE_MAX: u8 = u8::MAX;

const EXIT_CODES: &str = "\
Exit code: what the guest's main returns (255 if that is not between 0 and 255); 1, with a message, if the guest traps, \
is stopped by a limit or cannot be loaded; 2 wrong usage; 3 the server of --url cannot be reached; 130 interrupted";

pub(super) fn command() -> Command {
    Command::new("guest")
        .about("Run a WebAssembly guest of zABI 2.5 (sys/loop), with the capabilities that flags grant")
        .arg(Arg::new("module").value_name("MODULE").required(true).help("A .wasm or .wat file"))
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .help("Grant file/aio: the guest reads and writes beneath this folder, which it sees as /"),
        )
        .args(lists())
        .arg(Arg::new("group").long("group").value_name("G").help(
            "With --url: events of event/bus reach the guest as a member of this group, which keeps its place",
        ))
        .arg(
            Arg::new("caps-list")
                .long("caps-list")
                .value_name("FORM")
                .value_parser(["documented", "described"])
                .default_value("documented")
                .help("The form of CAPS_LIST: as documented, or with the descriptions that the reference adds"),
        )
        .arg(
            Arg::new("args")
                .value_name("ARGS")
                .num_args(0..)
                .last(true)
                .help("The guest's arguments, after MODULE, which is the first"),
        )
        .args(args(&[Scope::Guest, Scope::Client]))
        .mut_arg("url", |arg| {
            arg.help("With --allow event/bus: the server whose bus the guest uses [default: a bus inside the guest]")
        })
        .mut_arg("guest-memory-bytes-max", |arg| arg.visible_alias("memory-bytes-max"))
        .mut_arg("guest-step-ms-max", |arg| arg.visible_alias("step-ms-max"))
        .mut_arg("guest-wall-ms-max", |arg| arg.visible_alias("wall-ms-max"))
        .after_help(EXIT_CODES)
}

/// Returns the flags that may be given several times.
fn lists() -> [Arg; 4] {
    let list = |id: &'static str, flag: &'static str, value: &'static str| {
        Arg::new(id).long(flag).value_name(value).action(ArgAction::Append)
    };
    let always = grants::always_granted();
    [
        list("net", "net", "loopback|HOST:PORT,...").help(
            "Grant net/tcp and net/http: what the guest may connect to and listen on; also HOST:* and any",
        ),
        list("env", "env", "NAME=VALUE")
            .help("Grant proc/env: a variable that the guest sees; the host's own are not passed on"),
        // The id differs from the flag, because `allow` is the name of a setting of `millrace run`.
        list(grants::ALLOW, "allow", "CAPABILITY,...").help(format!(
            "Grant further capabilities, each as KIND/NAME: event/bus [always granted: {always}]"
        )),
        list("deny", "deny", "CAPABILITY,...")
            .help("Take away capabilities that are granted always, or by another flag"),
    ]
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let effective = resolve(matches)?;
    // The default filter shows what guests log by `zi_telemetry`.
    log::start(&effective.config, "warn,millrace::guest=info");
    // Each socket of the guest takes a file descriptor.
    descriptors::raise_to_hard();
    let wanted = grants::wanted(matches)?;
    let server = BusServer::named(matches, &effective, wanted.contains(&Capability::EventBus))?;
    let path = text(matches, "module").unwrap_or_default();
    let module = load(Path::new(path))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| cannot_start(&error))?;
    let ended = runtime.block_on(run_to_end(server, |bus| {
        let grants = grants::granted(matches, &wanted, bus)?;
        let mut options = ProcessOptions::new(path, grants);
        if text(matches, "caps-list") == Some("described") {
            options.caps_list = CapsListForm::WithDescription;
        }
        options.streams = StandardStreams {
            input: Box::new(io::stdin()),
            output: Box::new(io::stdout()),
            error: Box::new(io::stderr()),
        };
        module.start(options, &limits(&effective.config)).map_err(|error| cannot_start(&error))
    }));
    // The guest's thread may still be waiting for a line of stdin that never comes.
    runtime.shutdown_background();
    ended
}

fn cannot_start(error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot start: {error}"))
}

/// The server whose bus the guest uses, and the group it joins there.
struct BusServer<'a> {
    config: &'a Config,
    group: Option<Group>,
}

impl BusServer<'_> {
    /// Returns `None` if no server is named, or if the guest may not use its bus.
    fn named<'a>(
        matches: &ArgMatches,
        effective: &'a Effective,
        has_bus: bool,
    ) -> Result<Option<BusServer<'a>>, Failure> {
        let group = text(matches, "group").map(Group::new).transpose();
        let group = group.map_err(|error| Failure::Usage(error.to_string()))?;
        match effective.source("url") {
            SettingSource::Flag if !has_bus => {
                Err(Failure::Usage("url is given without --allow event/bus: the guest has no bus".into()))
            }
            SettingSource::Default if group.is_some() => {
                Err(Failure::Usage("group is given without url: a bus inside the guest has no groups".into()))
            }
            SettingSource::Default => Ok(None),
            _ => Ok(has_bus.then_some(BusServer { config: &effective.config, group })),
        }
    }
}

/// Starts the guest and waits until it ends, or until a signal stops it.
async fn run_to_end(
    server: Option<BusServer<'_>>,
    start: impl FnOnce(&Arc<dyn BusPort>) -> Result<GuestProcess, Failure>,
) -> Result<(), Failure> {
    // From here on a signal is caught, so that it cannot end the command while the guest is running.
    let mut interrupted = pin!(interrupted());
    file_size::refuse_instead_of_ending();
    let linked = tokio::select! {
        biased;
        () = &mut interrupted => return Err(Failure::Interrupted(None)),
        linked = link(server) => linked?,
    };
    let bus = match &linked {
        Some(bus) => Arc::clone(bus) as Arc<dyn BusPort>,
        None => Arc::new(LocalBus::default()),
    };
    let process = start(&bus)?;
    let stopper = process.stopper();
    let mut outcome = tokio::task::spawn_blocking(move || process.wait());
    let ended = tokio::select! {
        outcome = &mut outcome => {
            report(outcome.unwrap_or(GuestOutcome::Failed(GuestFailure::HostFailed)))
        }
        () = &mut interrupted => {
            stopper.stop();
            // The result is the same whether or not the guest ends in time.
            let _ = timeout(STOP_MAX, outcome).await;
            Err(Failure::Interrupted(None))
        }
    };
    if let Some(bus) = linked {
        // If the server does not answer in time, leave without an answer; the server notices that the connection is
        // closed.
        if timeout(STOP_MAX, bus.close()).await.is_err() {
            tracing::warn!("the server did not answer in time: groups of the guest may be left there");
        }
    }
    ended
}

async fn link(server: Option<BusServer<'_>>) -> Result<Option<Arc<ServerBus>>, Failure> {
    match server {
        None => Ok(None),
        Some(BusServer { config, group }) => Ok(Some(Arc::new(ServerBus::connect(config, group).await?))),
    }
}

fn report(outcome: GuestOutcome) -> Result<(), Failure> {
    match outcome {
        GuestOutcome::Returned(0) => Ok(()),
        GuestOutcome::Returned(code) => Err(match u8::try_from(code) {
            Ok(code) => Failure::ExitCode(code, None),
            Err(_) => Failure::ExitCode(CODE_MAX, Some(format!("the guest's main returned {code}"))),
        }),
        // Only the signal handler in `run_to_end` stops a guest that has not failed.
        GuestOutcome::Stopped => Err(Failure::Interrupted(None)),
        GuestOutcome::Failed(failure) => Err(Failure::Failed(failure.to_string())),
    }
}

fn load(path: &Path) -> Result<GuestModule, Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
    let unreadable = |error: io::Error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    // Reads one byte more than allowed, so that the compiler can detect a module that is too long.
    file.take(MODULE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let compiler = GuestCompiler::new().map_err(|error| broken(&error))?;
    compiler.load(&bytes).map_err(|error| broken(&error))
}

fn limits(config: &Config) -> GuestLimits {
    GuestLimits {
        memory_bytes_max: usize::try_from(config.guest.memory_bytes_max).unwrap_or(usize::MAX),
        step_ms_max: config.guest.step_ms_max,
        wall_ms_max: Some(config.guest.wall_ms_max).filter(|ms| *ms > 0),
        ..GuestLimits::default()
    }
}
