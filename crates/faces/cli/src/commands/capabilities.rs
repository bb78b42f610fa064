//! `millrace capabilities`: lists the requests that the CQRS loop of a server accepts.

use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

use crate::commands::connect::kernel_socket;
use crate::commands::kernel_client::KernelClient;
use crate::commands::send::token_arg;
use crate::commands::{json_flag, text};
use crate::failure::Failure;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    Command::new("capabilities")
        .about("List what the CQRS loop of a server can be asked for")
        .long_about(
            "Prints the types of all requests, their kind, the capability that handles them and what they do.\n\nWith NAME, a \
             type such as Memory.Set or a capability such as Memory: also the JSON Schemas of what they take and \
             answer.\n\nEnds with 1 if nothing has that name.",
        )
        .arg(Arg::new("name").value_name("NAME").help("A type, or the name of a capability"))
        .args(args(&[Scope::Socket]))
        .arg(token_arg())
        .arg(json_flag().help("Print each type as one line of JSON"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = text(matches, "name");
    let config = resolve(matches)?.config;
    let path = kernel_socket(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let found = runtime.block_on(async {
        let client = KernelClient::connect(&path, &config.token).await?;
        client.describe(name.unwrap_or("*")).await
    })?;
    if let (Some(name), true) = (name, found.is_empty()) {
        return Err(Failure::Failed(format!("no capability and no type is named {name}")));
    }
    let mut out = Output::new();
    if matches.get_flag("json") {
        for (ty, mut described) in found {
            described["type"] = ty.into();
            out.json(&described)?;
        }
    } else if name.is_some() {
        for (ty, described) in &found {
            in_full(ty, described).iter().try_for_each(|line| out.line(line))?;
        }
    } else {
        table(&found).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

fn table(found: &[(String, Value)]) -> Vec<String> {
    let head = ["TYPE", "KIND", "CAPABILITY", "DESCRIPTION"].map(str::to_owned).to_vec();
    let row = |(ty, described): &(String, Value)| {
        vec![
            ty.clone(),
            cell(described, "kind"),
            cell(described, "capability"),
            cell(described, "description"),
        ]
    };
    columns(&std::iter::once(head).chain(found.iter().map(row)).collect::<Vec<_>>())
}

fn in_full(ty: &str, described: &Value) -> Vec<String> {
    let schema = |name: &str| {
        let text = serde_json::to_string_pretty(&described[name]).unwrap_or_default();
        format!("{name}: {text}")
    };
    let (kind, capability) = (cell(described, "kind"), cell(described, "capability"));
    vec![
        format!("{ty}: {kind} of {capability}"),
        cell(described, "description"),
        schema("input"),
        schema("output"),
        String::new(),
    ]
}

/// Returns a description on one line, whatever control characters the author of the capability wrote.
fn cell(described: &Value, name: &str) -> String {
    described[name].as_str().unwrap_or_default().replace(char::is_control, " ")
}
