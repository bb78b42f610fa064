//! `millrace backup` writes a store into one file; `millrace restore` makes a store of such a file.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_stores::{Copied, Existing, backup, local_file, prepare_restore, without_secrets};
use serde_json::json;

use crate::commands::json_flag;
use crate::commands::offline::{examine, store_options, store_url};
use crate::failure::Failure;
use crate::log;
use crate::output::Output;
use crate::settings::{Scope, args, resolve};

fn verb(name: &'static str, about: &'static str, force: &'static str) -> Command {
    let file = Arg::new("file").value_name("FILE").required(true).value_parser(value_parser!(PathBuf));
    Command::new(name)
        .about(about)
        .arg(file.help("The backup"))
        .arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help(force))
        .arg(json_flag())
        .args(args(&[Scope::Store]))
}

pub(super) fn backup_command() -> Command {
    verb("backup", "Copy a store to one file, while it is served or not", "Replace FILE if it is there").long_about(
        "Copy a store to one file, while it is served or not.\n\nThe copy is of one moment: every publish confirmed \
         before the command started is in it. The file gets its name when it is whole and synced.",
    )
}

pub(super) fn restore_command() -> Command {
    verb("restore", "Make a backup the store", "Replace the store if there is one")
        .long_about(
            "Make a backup the store.\n\nThe backup is examined first as `millrace doctor` would. Refused while any \
             process has the store open.",
        )
        .arg(
            Arg::new("allow-damaged")
                .long("allow-damaged")
                .action(ArgAction::SetTrue)
                .help("Restore a backup that has problems, too, as it is"),
        )
}

fn file(matches: &ArgMatches) -> PathBuf {
    matches.get_one::<PathBuf>("file").cloned().unwrap_or_default()
}

fn existing(matches: &ArgMatches) -> Existing {
    if matches.get_flag("force") { Existing::Replace } else { Existing::Keep }
}

pub(super) fn run_backup(matches: &ArgMatches) -> Result<(), Failure> {
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let file = file(matches);
    let url = store_url(&config)?;
    let source = local_file(&url, &store_options(&config))?;
    let copied = backup(source.url(), &file, existing(matches))?;
    let store = url.to_string();
    say(matches, &store, &format!("{store} is backed up to {}", file.display()), copied)
}

pub(super) fn run_restore(matches: &ArgMatches) -> Result<(), Failure> {
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let file = file(matches);
    let restore = prepare_restore(&file, &store_url(&config)?, existing(matches))?;
    let found = examine(&restore.open_doctor()?).findings;
    if let Some(first) =
        found.list().iter().find(|_| !found.is_healthy() && !matches.get_flag("allow-damaged"))
    {
        return Err(Failure::Failed(format!(
            "{} is damaged: {}: {} (problems in all: {}); choose another backup, or --allow-damaged to restore it \
             with its damage",
            file.display(),
            first.place,
            first.what,
            found.problems()
        )));
    }
    let copied = restore.finish()?;
    let store = without_secrets(&config.store);
    say(matches, &store, &format!("{store} is restored from {}", file.display()), copied)
}

fn say(matches: &ArgMatches, store: &str, done: &str, copied: Copied) -> Result<(), Failure> {
    let mut out = Output::new();
    let Copied { events, bytes } = copied;
    if matches.get_flag("json") {
        out.json(&json!({ "store": store, "file": file(matches), "events": events, "bytes": bytes }))?;
    } else {
        out.line(&format!("{done}: {events} events, {bytes} bytes"))?;
    }
    out.flush()
}
