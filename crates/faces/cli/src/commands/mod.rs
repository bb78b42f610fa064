//! The commands, each in its own file. This file only lists them and dispatches.

mod backup;
mod bench;
mod bench_soak;
mod capabilities;
mod commits;
mod completions;
mod config;
mod connect;
mod dead_letters;
mod descriptors;
mod doctor;
mod events;
mod feed;
mod file_size;
mod groups;
mod guard;
mod guest;
mod health;
mod info;
mod jobs;
mod kernel_client;
mod letter_edit;
mod man;
mod memory;
mod offline;
mod openapi;
mod opening;
mod progress;
mod publish;
mod run;
mod send;
mod send_typed;
mod serve;
mod store;
mod subscribe;
mod tally;
mod topic_groups;
mod topic_schema;
mod topic_settings;
mod topics;
mod trace;
mod trace_event;

use clap::{Arg, ArgAction, ArgMatches, Command};

use millrace_model::Timestamp;

pub(crate) use connect::client_certificate;

use crate::failure::Failure;

pub(crate) fn command() -> Command {
    // These two are not for users, so shell completions and manual pages (`for_people`) leave them out.
    numbers_may_be_negative(for_people()).subcommand(man::command()).subcommand(guard::command())
}

/// Lets values begin with a minus: `--delay-ms -5` is a wrong number and `pub t -5` a valid payload, not an unknown
/// flag.
fn numbers_may_be_negative(command: Command) -> Command {
    let takes_value = |arg: &Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(numbers_may_be_negative)
}

fn for_people() -> Command {
    Command::new("millrace")
        .version(clap::crate_version!())
        .about("A durable event broker: acked means it is on disk")
        .after_help("Exit codes: 0 done, 1 failed, 2 wrong usage, 3 cannot reach the server or store, 130 interrupted")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args_override_self(true)
        .max_term_width(120)
        .subcommands([
            serve::command(),
            publish::command(),
            subscribe::command(),
            send::command(),
            run::command(),
            guest::command(),
            capabilities::command(),
            trace::command(),
            topics::command(),
            groups::command(),
            store::command(),
            backup::backup_command(),
            backup::restore_command(),
            doctor::command(),
            info::command(),
            health::command(),
            dead_letters::command(),
            jobs::command(),
            events::command(),
            commits::command(),
            config::command(),
            openapi::command(),
            completions::command(),
            bench::command(),
        ])
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("serve", matches)) => serve::run(matches),
        Some(("pub", matches)) => publish::run(matches),
        Some(("sub", matches)) => subscribe::run(matches),
        Some(("send", matches)) => send::run(matches),
        Some(("run", matches)) => run::run(matches),
        Some(("guest", matches)) => guest::run(matches),
        Some(("capabilities", matches)) => capabilities::run(matches),
        Some(("trace", matches)) => trace::run(matches),
        Some(("topics", matches)) => topics::run(matches),
        Some(("groups", matches)) => groups::run(matches),
        Some(("store", matches)) => store::run(matches),
        Some(("backup", matches)) => backup::run_backup(matches),
        Some(("restore", matches)) => backup::run_restore(matches),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("info", matches)) => info::run(matches),
        Some(("health", matches)) => health::run(matches),
        Some(("dead-letters", matches)) => dead_letters::run(matches),
        Some(("jobs", matches)) => jobs::run(matches),
        Some(("events", matches)) => events::run(matches),
        Some(("commits", matches)) => commits::run(matches),
        Some(("config", matches)) => config::run(matches),
        Some(("openapi", _)) => openapi::run(),
        Some(("completions", matches)) => completions::run(matches),
        Some(("bench", matches)) => bench::run(matches),
        Some(("man", matches)) => man::run(matches),
        Some((guard::NAME, matches)) => guard::run(matches),
        _ => Err(Failure::Usage("no such command: see `millrace --help`".into())),
    }
}

fn json_flag() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON")
}

/// Returns the value of an argument as text; `None` if it was not given or the command does not have it.
fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.try_get_one::<String>(name).ok().flatten().map(String::as_str)
}

/// Splits `NAME=VALUE`, the form of a header.
fn name_and_value(flag: &str, text: &str) -> Result<(String, String), Failure> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::Usage(format!("{flag} is {text:?}: it must be NAME=VALUE")))?;
    Ok((name.into(), value.into()))
}

/// Returns the current time, for ids that are made here. A clock before 1970 counts as 0.
fn now() -> Timestamp {
    Timestamp(std::time::UNIX_EPOCH.elapsed().map_or(0, |since_epoch| since_epoch.as_millis() as u64))
}
