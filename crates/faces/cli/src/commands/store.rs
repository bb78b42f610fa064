//! `millrace store`: looks at a shared store, checks it, makes a snapshot, and moves a store to another engine.

use clap::{Arg, ArgMatches, Command};
use millrace_stores::{
    Moved, SharedInfo, SharedUrl, SnapshotMade, StoreOptions, StoreUrl, local_file, make_snapshot,
    move_store, open_doctor, shared_info,
};
use serde_json::json;

use crate::commands::json_flag;
use crate::commands::offline::{examine, store_options, store_url};
use crate::commands::progress::Steps;
use crate::failure::Failure;
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Store]))
    };
    let url =
        |name: &'static str, help: &'static str| Arg::new(name).value_name("URL").required(true).help(help);
    Command::new("store")
        .about("Look at a shared store, check it, make a snapshot, or move a store to another engine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            verb("info", "Show the engine of a shared store, its newest record, and who leads"),
            verb("snapshot", "Make a snapshot of a shared store beside its servers"),
            verb("verify", "Read the whole of a store and check it like `millrace doctor`"),
            verb("copy", "Copy a store to another engine, and compare both event by event")
                .long_about(
                    "Copy a store to another engine, and compare both event by event and row by row.\n\nThe source may be \
                     in use: the copy is of one moment, and what is published later is not in it. To move, stop the servers \
                     of the source first. The target must not hold a store yet.",
                )
                .arg(url("from", "The store to copy"))
                .arg(url("to", "Where to: sqlite:///FILE, postgres://…, s3://…, mongodb://… or dir:///FOLDER")),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let options = store_options(&config);
    let mut out = Output::new();
    let is_json = matches.get_flag("json");
    match verb {
        "info" => info(&mut out, is_json, &shared_info(&shared(&store_url(&config)?)?, &options)?)?,
        "snapshot" => {
            let SnapshotMade { n, bytes, parts } = make_snapshot(&shared(&store_url(&config)?)?, &options)?;
            match is_json {
                true => out.json(&json!({ "n": n, "bytes": bytes, "parts": parts }))?,
                false => out.line(&format!("a snapshot at record {n}: {bytes} bytes in {parts} parts"))?,
            }
        }
        "verify" => verify(&mut out, is_json, &store_url(&config)?, &options)?,
        _ => copy(&mut out, is_json, matches, &options)?,
    }
    out.flush()
}

fn shared(url: &StoreUrl) -> Result<SharedUrl, Failure> {
    match url {
        StoreUrl::Shared(url) => Ok(url.clone()),
        url => Err(Failure::Usage(format!(
            "store is {url}: only a shared store (postgres://…, s3://…, mongodb://…, dir:///…) has a journal"
        ))),
    }
}

fn info(out: &mut Output, is_json: bool, info: &SharedInfo) -> Result<(), Failure> {
    let SharedInfo { engine, is_replicated, remarks, store_id, head, term, is_led, leader_url, .. } = info;
    let since = info.records_since_snapshot;
    if is_json {
        return out.json(&json!({
            "engine": engine, "replicated": is_replicated, "remarks": remarks, "store_id": format!("{store_id:032x}"),
            "head": head, "term": term, "led": is_led, "leader": leader_url, "records_since_snapshot": since,
        }));
    }
    let leader = match (is_led, leader_url) {
        (true, Some(url)) => format!("{url} (term {term})"),
        (true, None) => format!("a server without an address (term {term})"),
        (false, _) => "nobody".to_owned(),
    };
    let promise = if *is_replicated { "replicated" } else { "fsync" };
    let mut lines = vec![
        vec!["engine".to_owned(), engine.clone()],
        vec!["promises".to_owned(), promise.to_owned()],
        vec!["store id".to_owned(), format!("{store_id:032x}")],
        vec!["newest record".to_owned(), head.to_string()],
        vec!["since the snapshot".to_owned(), since.to_string()],
        vec!["leader".to_owned(), leader],
    ];
    lines.extend(remarks.iter().map(|remark| vec!["remark".to_owned(), remark.clone()]));
    out.document(&columns(&lines).join("\n"))
}

fn verify(out: &mut Output, is_json: bool, url: &StoreUrl, options: &StoreOptions) -> Result<(), Failure> {
    let steps = Steps::new();
    steps.say("reading the store");
    let file = local_file(url, options)?;
    steps.say("checking it");
    let examined = examine(&open_doctor(file.url())?);
    drop(steps);
    let problems = examined.findings.problems();
    match is_json {
        true => out.json(&json!({ "events": examined.events, "problems": problems }))?,
        false => out.line(&format!("{} events, {problems} problems", examined.events))?,
    }
    match examined.findings.list().first().filter(|_| problems > 0) {
        Some(first) => Err(Failure::Failed(format!("{}: {}", first.place, first.what))),
        None => Ok(()),
    }
}

fn copy(
    out: &mut Output,
    is_json: bool,
    matches: &ArgMatches,
    options: &StoreOptions,
) -> Result<(), Failure> {
    let url = |name: &str| -> Result<StoreUrl, Failure> {
        let text = matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
        text.parse().map_err(|error| Failure::Usage(format!("{name}: {error}")))
    };
    let (from, to) = (url("from")?, url("to")?);
    let steps = Steps::new();
    let mut said = String::new();
    let moved = move_store(&from, &to, options, &mut |step, events| {
        let text = if events == 0 { step.to_owned() } else { format!("{step}: {events} events") };
        // In a pipe one line for each step is enough.
        if said != step || events.is_multiple_of(100_000) {
            steps.say(&text);
            step.clone_into(&mut said);
        }
    })?;
    drop(steps);
    let Moved { events, rows, bytes } = moved;
    match is_json {
        true => out.json(&json!({
            "from": from.to_string(), "to": to.to_string(), "events": events, "rows": rows, "bytes": bytes,
        })),
        false => out.line(&format!(
            "{from} is copied to {to}: {events} events and {rows} rows compared, {bytes} bytes"
        )),
    }
}
