//! `millrace events ...`: shows and repairs the work of durable handlers. These commands open the store itself, beside
//! other processes that have it open, and never create a store.

mod ago;
mod changes;
mod inspect;
mod lists;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_admin::{Admin, AdminError, ChangeError};
use millrace_model::{EventId, Namespace, Timestamp};
use millrace_stores::OpenedStore;

use crate::commands::offline::store_url;
use crate::commands::{json_flag, now, text};
use crate::failure::Failure;
use crate::log;
use crate::output::Output;
use crate::settings::{Config, Scope, args, resolve};

pub(super) use millrace_admin::SESSION_TTL_MS;

pub(super) fn command() -> Command {
    Command::new("events")
        .about("Look at the work of durable handlers, and mend it")
        .long_about(
            "Look at the work of durable handlers, and mend it.\n\nWorks on the store itself, beside programs and a \
             server that have it open. Never makes a store: exit code 3 when there is none.",
        )
        .subcommand_required(true)
        .subcommand(verb("list-namespaces", "All namespaces: sessions alive, events pending, dead letters"))
        .subcommand(
            namespaced("sessions", "Sessions of a namespace and their last sign of life").arg(
                Arg::new("session-ttl-ms")
                    .long("session-ttl-ms")
                    .value_name("MS")
                    .value_parser(value_parser!(u64))
                    .help("Silent for longer counts as dead [default: 60000]"),
            ),
        )
        .subcommand(namespaced("handlers", "Handlers of a namespace: what each takes, what it owes, what it gave up on"))
        .subcommand(namespaced("schedules", "Schedules of a namespace, their last fire and the next"))
        .subcommand(namespaced("show", "The newest events, how they stand, and which handlers still owe them").arg(limit(10)))
        .subcommand(
            namespaced("dead-letters", "Events that handlers gave up on: list, replay, publish again or delete them")
                .arg(limit(100))
                .arg(
                    Arg::new("replay")
                        .long("replay")
                        .value_name("EVENT_ID|all")
                        .conflicts_with("publish-again")
                        .help(
                            "Give the event of one dead letter, or of all, back to the handler that gave up: the same \
                             event under the same id, for no other handler; the letters go",
                        ),
                )
                .arg(
                    Arg::new("publish-again")
                        .long("publish-again")
                        .value_name("EVENT_ID|all")
                        .help(
                            "Publish the event of one dead letter, or of all, again as a new event: every handler of \
                             its type gets it; the letters go",
                        ),
                )
                .arg(
                    Arg::new("delete")
                        .long("delete")
                        .value_name("EVENT_ID|all")
                        .conflicts_with_all(["replay", "publish-again"])
                        .help("Delete the dead letters of one event, or all; nothing is sent again"),
                )
                .arg(yes()),
        )
        .subcommand(
            namespaced("cleanup", "Remove old events")
                .long_about(
                    "Remove events that are older than --before, that all their handlers have finished and all groups \
                     have committed. Topics with a retention of their own keep it. Events of a type that no handler and no \
                     group has asked for yet are pending, and stay.",
                )
                .arg(
                    Arg::new("before")
                        .long("before")
                        .value_name("AGE")
                        .required(true)
                        .help("Older than this: a number and d, h, m or s, as in 7d"),
                )
                .arg(
                    Arg::new("all")
                        .long("all")
                        .action(ArgAction::SetTrue)
                        .help("Also events that some handler or group has not finished, or nobody has asked for"),
                )
                .arg(
                    Arg::new("dead-letters")
                        .long("dead-letters")
                        .action(ArgAction::SetTrue)
                        .help("Also dead letters of handlers that are older"),
                )
                .arg(yes()),
        )
        .subcommand(
            namespaced("replay", "Publish a copy of an event under a new id: every handler of its type gets it")
                .long_about(
                    "Publish a copy of an event under a new id: every handler of its type gets it, also those that have \
                     finished the event. To give an event back to the one handler that gave up on it, use dead-letters \
                     --replay.",
                )
                .arg(event_id()),
        )
        .subcommand(
            verb("inspect", "Everything about one event, as JSON").arg(event_id()).arg(namespace().help("Look only there")),
        )
        .subcommand(
            namespaced("pause-handler", "Let a handler claim nothing more, in all sessions; its events wait and are kept")
                .arg(handler()),
        )
        .subcommand(
            namespaced("resume-handler", "Let a paused handler go on; a pause in the program's own settings stays").arg(handler()),
        )
        .subcommand(
            namespaced("run-schedule", "Let a schedule fire once now, beside its planned fires").long_about(
                "Let a schedule fire once now, beside its planned fires, also while it is paused. A session that has the \
                 schedule makes the fire within its refresh_interval_ms (5 seconds); while none runs, the request waits.",
            )
            .arg(schedule()),
        )
        .subcommand(
            namespaced("pause-schedule", "Let a schedule fire no more, in all sessions, until it is resumed")
                .arg(schedule()),
        )
        .subcommand(
            namespaced("resume-schedule", "Let a paused schedule go on; fires that it missed meanwhile stay missed")
                .arg(schedule()),
        )
        .subcommand(
            namespaced("forget-handler", "Forget a handler that will not come back, so that retention need not wait for it")
                .arg(handler())
                .arg(yes()),
        )
}

fn verb(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Store]))
}

fn namespaced(name: &'static str, about: &'static str) -> Command {
    verb(name, about).arg(namespace().help("Namespace [default: default]"))
}

fn namespace() -> Arg {
    Arg::new("namespace").long("namespace").value_name("NAME")
}

fn limit(default: u64) -> Arg {
    Arg::new("limit")
        .long("limit")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..=10_000))
        .help(format!("At most so many [default: {default}]"))
}

fn event_id() -> Arg {
    Arg::new("event-id").long("event-id").value_name("ID").required(true).help("Id of the event")
}

fn handler() -> Arg {
    Arg::new("handler").value_name("HANDLER").required(true).help("Its id, as `inspect` shows it")
}

fn schedule() -> Arg {
    Arg::new("schedule").value_name("SCHEDULE").required(true).help("Its name, as `schedules` shows it")
}

fn yes() -> Arg {
    Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do not ask")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let call = EventsCall {
        admin: Admin::new(open_existing(&config)?.store),
        namespace: text(matches, "namespace")
            .map(Namespace::new)
            .transpose()
            .map_err(|error| Failure::Usage(error.to_string()))?,
        json: matches.get_flag("json"),
        now: now(),
        out: Output::new(),
    };
    match verb {
        "list-namespaces" => call.list_namespaces(),
        "sessions" => call.sessions(matches.get_one("session-ttl-ms").copied().unwrap_or(SESSION_TTL_MS)),
        "handlers" => call.handlers(),
        "schedules" => call.schedules(),
        "show" => call.show(count(matches, 10)),
        "dead-letters" => {
            let flag = |name| text(matches, name);
            match (flag("replay"), flag("publish-again"), flag("delete")) {
                (Some(which), ..) => call.replay_dead_letters(which),
                (_, Some(which), _) => call.publish_dead_letters_again(which),
                (.., Some(which)) => call.delete_dead_letters(which, matches.get_flag("yes")),
                (None, None, None) => call.dead_letters(count(matches, 100)),
            }
        }
        "cleanup" => call.cleanup(
            text(matches, "before").unwrap_or_default(),
            matches.get_flag("all"),
            matches.get_flag("dead-letters"),
            matches.get_flag("yes"),
        ),
        "replay" => call.replay(&wanted(matches)?),
        "inspect" => call.inspect(&wanted(matches)?),
        "pause-handler" => call.set_handler_paused(text(matches, "handler").unwrap_or_default(), true),
        "resume-handler" => call.set_handler_paused(text(matches, "handler").unwrap_or_default(), false),
        "run-schedule" => call.run_schedule(text(matches, "schedule").unwrap_or_default()),
        "pause-schedule" => call.set_schedule_enabled(text(matches, "schedule").unwrap_or_default(), false),
        "resume-schedule" => call.set_schedule_enabled(text(matches, "schedule").unwrap_or_default(), true),
        "forget-handler" => {
            call.forget_handler(text(matches, "handler").unwrap_or_default(), matches.get_flag("yes"))
        }
        _ => Ok(()),
    }
}

/// A running command with its open store.
struct EventsCall {
    admin: Admin,
    namespace: Option<Namespace>,
    json: bool,
    now: Timestamp,
    out: Output,
}

impl EventsCall {
    fn namespace(&self) -> Namespace {
        self.namespace.clone().unwrap_or_default()
    }
}

/// Opens the store that the settings name, if it exists.
pub(super) fn open_existing(config: &Config) -> Result<OpenedStore, Failure> {
    Ok(millrace_stores::open_existing(&store_url(config)?, &config.store_options)?)
}

fn count(matches: &ArgMatches, default: u64) -> usize {
    matches.get_one::<u64>("limit").copied().unwrap_or(default) as usize
}

fn wanted(matches: &ArgMatches) -> Result<EventId, Failure> {
    EventId::parse(text(matches, "event-id").unwrap_or_default())
        .map_err(|error| Failure::Usage(format!("--event-id: {error}")))
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Failure {
        Failure::Failed(error.to_string())
    }
}
