//! `millrace config print`: every setting, its value, and where the value came from.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::commands::json_flag;
use crate::failure::Failure;
use crate::output::{Output, columns};
use crate::settings::{Kind, Scope, Setting, Value, args, resolve};

pub(super) fn command() -> Command {
    let print = Command::new("print")
        .about("Show the effective settings and where each came from")
        .arg(json_flag())
        .args(args(&[Scope::Serve, Scope::Store, Scope::Bound, Scope::Client]));
    Command::new("config").about("Settings").subcommand_required(true).subcommand(print)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(("print", matches)) = matches.subcommand() else { return Ok(()) };
    let effective = resolve(matches)?;
    let mut out = Output::new();
    if matches.get_flag("json") {
        let settings: BTreeMap<_, _> = effective
            .settings()
            .map(|(setting, value, source)| {
                (setting.name, json!({ "value": to_json(setting, value), "from": source.to_string() }))
            })
            .collect();
        out.json(&settings)?;
    } else {
        let head = ["SETTING", "VALUE", "FROM"].map(String::from).to_vec();
        let rows = effective.settings().map(|(setting, value, source)| {
            vec![setting.name.to_owned(), setting.kind.shown(&value), source.to_string()]
        });
        for line in columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>()) {
            out.line(&line)?;
        }
    }
    out.flush()
}

fn to_json(setting: &Setting, value: Value) -> Json {
    match (setting.kind, value) {
        (Kind::Secret, value) => json!(setting.kind.shown(&value)),
        (_, Value::Text(text)) => json!(text),
        (_, Value::Number(number)) => json!(number),
        (_, Value::Flag(flag)) => json!(flag),
        (_, Value::List(items)) => json!(items),
    }
}
