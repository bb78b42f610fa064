//! `millrace commits list|show`: the commits that sessions made to the state of a namespace.

use std::sync::Arc;

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_model::{Identity, Namespace, StateChange, StateCommit};
use millrace_state::{CommitRecord, State, StateError};
use serde_json::{Value, json};

use crate::commands::events::open_existing;
use crate::commands::{json_flag, text};
use crate::failure::Failure;
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Store])).arg(
            Arg::new("namespace").long("namespace").value_name("NAME").help("Namespace [default: default]"),
        )
    };
    Command::new("commits")
        .about("Show the commits that sessions made to the state of a namespace")
        .subcommand_required(true)
        .subcommand(
            verb("list", "The newest commits, the newest first")
                .arg(
                    Arg::new("last")
                        .long("last")
                        .value_name("N")
                        .value_parser(value_parser!(u64).range(1..=1000))
                        .help("At most so many [default: 10]"),
                )
                .arg(
                    Arg::new("since")
                        .long("since")
                        .value_name("COMMIT")
                        .value_parser(value_parser!(u64))
                        .help("Only commits after this one"),
                ),
        )
        .subcommand(
            verb("show", "Show a commit and its changes").arg(
                Arg::new("commit")
                    .value_name("COMMIT")
                    .required(true)
                    .value_parser(value_parser!(u64))
                    .help("Its number"),
            ),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let namespace = text(matches, "namespace").map_or(Ok(Namespace::default()), Namespace::new);
    let namespace = namespace.map_err(|error| Failure::Usage(error.to_string()))?;
    let opened = open_existing(&config)?;
    let state = State::new(Arc::clone(&opened.store), namespace);
    let (mut out, json) = (Output::new(), matches.get_flag("json"));
    let number = |name: &str| matches.try_get_one::<u64>(name).ok().flatten().copied();
    match verb {
        "list" => {
            let last = number("last").unwrap_or(10) as usize;
            let found = state.list_commits(last, StateCommit(number("since").unwrap_or(0)))?;
            list(&mut out, json, &found)
        }
        "show" => show(&mut out, json, &state, StateCommit(number("commit").unwrap_or(0))),
        _ => Ok(()),
    }
}

fn list(out: &mut Output, json: bool, found: &[CommitRecord]) -> Result<(), Failure> {
    if json {
        out.json(&found.iter().map(record).collect::<Vec<Value>>())?;
        return out.flush();
    }
    let mut rows = vec![["Commit", "Time", "Changes", "Metadata"].map(String::from).to_vec()];
    rows.extend(found.iter().map(|commit| {
        vec![commit.id.0.to_string(), commit.at.to_string(), commit.changes.to_string(), meta(commit)]
    }));
    out.document(&columns(&rows).join("\n"))
}

fn show(out: &mut Output, json: bool, state: &State, id: StateCommit) -> Result<(), Failure> {
    let none =
        || Failure::Failed(format!("there is no commit {} in namespace '{}'", id.0, state.namespace()));
    let commit = state.get_commit(id)?.ok_or_else(none)?;
    let changes = state.list_commit_changes(id)?;
    if json {
        let mut document = record(&commit);
        document["changes"] = json!(changes);
        out.json(&document)?;
        return out.flush();
    }
    let mut lines = vec![format!("commit {} of {}", id.0, commit.at)];
    lines.extend(Some(meta(&commit)).filter(|meta| !meta.is_empty()));
    let rows: Vec<Vec<String>> = changes.iter().map(row).collect();
    lines.extend(columns(&rows));
    out.document(&lines.join("\n"))
}

fn record(commit: &CommitRecord) -> Value {
    json!({
        "commit_id": commit.id,
        "timestamp": commit.at.to_string(),
        "operations": commit.changes,
        "meta": commit.meta,
        "events": commit.events,
    })
}

/// Escaped, because programs wrote these texts: they must not control the terminal.
fn meta(commit: &CommitRecord) -> String {
    let pairs = commit.meta.iter().map(|(name, value)| format!("{name}={value}").escape_debug().to_string());
    pairs.collect::<Vec<_>>().join(" ")
}

fn row(change: &StateChange) -> Vec<String> {
    let operation = match change.operation {
        millrace_model::Operation::Insert => "insert",
        millrace_model::Operation::Update => "update",
        millrace_model::Operation::Retract => "retract",
    };
    let (type_name, key) = match &change.identity {
        Identity::Entity { type_name, key } => (type_name, key.clone()),
        Identity::Relation { type_name, left_key, right_key, instance_key } => {
            let instance = if instance_key.is_empty() { String::new() } else { format!(" #{instance_key}") };
            (type_name, format!("{left_key} -> {right_key}{instance}"))
        }
    };
    vec![operation.to_owned(), type_name.escape_debug().to_string(), key.escape_debug().to_string()]
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Failure {
        Failure::Failed(error.to_string())
    }
}
