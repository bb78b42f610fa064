//! `millrace config print`: every setting, its value, and where the value came from.

use std::collections::BTreeMap;
use std::io::Write;

use clap::{ArgMatches, Command};
use serde_json::json;

use millrace_server::{Proof, TokenSettings};

use crate::commands::json_flag;
use crate::exposed;
use crate::failure::Failure;
use crate::output::{Output, columns};
use crate::settings::{Effective, Scope, SettingSource, args, capability_line, resolve, shown, token_line};

pub(super) fn command() -> Command {
    let print = Command::new("print")
        .about("Show the effective settings and where each came from")
        .arg(json_flag())
        .args(args(&[
            Scope::Serve,
            Scope::Store,
            Scope::Socket,
            Scope::Bound,
            Scope::Client,
            Scope::Run,
            Scope::Guest,
        ]));
    Command::new("config").about("Settings").subcommand_required(true).subcommand(print)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(("print", matches)) = matches.subcommand() else { return Ok(()) };
    let effective = resolve(matches)?;
    let mut out = Output::new();
    let tables = tables(&effective);
    if matches.get_flag("json") {
        let settings: BTreeMap<_, _> = effective
            .settings()
            .map(|(setting, value, source)| {
                (setting.name, json!({ "value": shown(setting, value), "from": source.to_string() }))
            })
            .chain(
                tables
                    .iter()
                    .map(|(name, what, from)| (name.as_str(), json!({ "value": what, "from": from }))),
            )
            .collect();
        out.json(&settings)?;
    } else {
        let head = ["SETTING", "VALUE", "FROM"].map(String::from).to_vec();
        let rows = effective.settings().map(|(setting, value, source)| {
            vec![setting.name.to_owned(), setting.kind.shown(&value), source.to_string()]
        });
        let tables = tables.iter().map(|(name, what, from)| vec![name.clone(), what.clone(), from.clone()]);
        for line in columns(&std::iter::once(head).chain(rows).chain(tables).collect::<Vec<_>>()) {
            out.line(&line)?;
        }
    }
    out.flush()?;
    for warning in exposed::secrets(&effective) {
        // A failed write is ignored: the warning is for people, and the data on stdout is already complete.
        let _ = writeln!(std::io::stderr(), "millrace: {warning}");
    }
    Ok(())
}

/// Returns one line per token or certificate, with the agent it stands for but never the token or its digest, and one
/// line per capability.
fn tables(effective: &Effective) -> Vec<(String, String, String)> {
    let from = |source: &Option<SettingSource>| source.as_ref().map(ToString::to_string).unwrap_or_default();
    let server = &effective.config.server;
    let (certificates, tokens): (Vec<_>, Vec<_>) =
        server.tokens.iter().partition(|token| matches!(token.proof, Proof::Certificate(_)));
    let numbered = |key: &'static str, entries: Vec<&TokenSettings>| {
        let lines = entries.into_iter().enumerate();
        let line =
            |(at, token)| (format!("auth.{key}[{at}]"), token_line(token), from(&effective.tokens_from));
        lines.map(line).collect::<Vec<_>>()
    };
    let tokens = numbered("tokens", tokens).into_iter().chain(numbered("certificates", certificates));
    let capabilities = server.capabilities.iter().enumerate().map(|(at, child)| {
        (format!("capability[{at}]"), capability_line(child), from(&effective.capabilities_from))
    });
    tokens.chain(capabilities).collect()
}
