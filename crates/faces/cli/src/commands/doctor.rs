//! `millrace doctor`: reports what is wrong with a store, and what to do about it.

use clap::{ArgMatches, Command};
use millrace_model::{Finding, Weight};
use millrace_stores::{Examined, StoreUrl, local_file, open_doctor};
use serde_json::{Value, json};

use crate::commands::json_flag;
use crate::commands::offline::{examine, store_options, store_url};
use crate::failure::Failure;
use crate::log;
use crate::output::Output;
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    Command::new("doctor")
        .about("Check a store end to end, without changing it")
        .long_about(
            "Check a store end to end, without changing it: SQLite's structure, schema version, the checksum of every \
             event, offsets without holes, bookkeeping that agrees, positions of groups within bounds; and, while nobody has it \
             open, whether the write-ahead log goes on behind a damaged place.\n\nIt may run \
             beside a server; the write-ahead log cannot shrink meanwhile. To check a backup, name it as the store.\n\n\
             Exit codes: 0 healthy, 1 problems found, 3 there is no store",
        )
        .arg(json_flag())
        .args(args(&[Scope::Store]))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let url = store_url(&config)?;
    // Of a shared store the snapshot and the journal are read, and checked as the file that they make.
    let file = local_file(&url, &store_options(&config))?;
    let examined = examine(&open_doctor(file.url())?);
    let mut out = Output::new();
    if matches.get_flag("json") {
        out.json(&document(&url.to_string(), &examined))?;
    } else {
        print(&mut out, &url, &examined)?;
    }
    out.flush()?;
    match examined.findings.problems() {
        0 => Ok(()),
        1 => Err(Failure::Failed("1 problem found".into())),
        problems => Err(Failure::Failed(format!("{problems} problems found"))),
    }
}

fn document(store: &str, examined: &Examined) -> Value {
    let of = |weight: Weight| -> Vec<Value> {
        let findings = examined.findings.list().iter().filter(|one| one.weight == weight);
        findings.map(|one| json!({ "place": one.place, "what": one.what, "advice": one.advice })).collect()
    };
    json!({
        "store": store,
        "healthy": examined.findings.is_healthy(),
        "schema": examined.schema_version,
        "events": examined.events,
        "streams": examined.streams.len(),
        "problems": of(Weight::Problem),
        "notes": of(Weight::Note),
        "left_out": examined.findings.left_out(),
    })
}

fn print(out: &mut Output, url: &StoreUrl, examined: &Examined) -> Result<(), Failure> {
    for finding in examined.findings.list() {
        out.line(&shown(finding))?;
    }
    if examined.findings.left_out() > 0 {
        out.line(&format!("and {} more", examined.findings.left_out()))?;
    }
    let Some(version) = examined.schema_version else { return Ok(()) };
    let state = if examined.findings.is_healthy() { "healthy" } else { "damaged" };
    let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let events = counted(examined.events, "whole event");
    let streams = counted(examined.streams.len() as u64, "stream");
    let name = url.file().map_or_else(|| url.to_string(), |file| file.display().to_string());
    out.line(&format!("{name} is {state}: schema {version}, {events} in {streams}"))
}

fn shown(finding: &Finding) -> String {
    let Finding { weight, place, what, advice } = finding;
    match weight {
        Weight::Problem => format!("problem: {place}: {what}\n  {advice}"),
        Weight::Note => format!("note: {place} {what}"),
    }
}
