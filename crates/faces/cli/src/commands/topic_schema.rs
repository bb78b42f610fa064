//! `millrace topics schema`: the versions of a topic's schema.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_model::TopicName;
use millrace_wire::http::SchemaList;
use ureq::http::Method;

use crate::commands::topics::TopicsCall;
use crate::failure::Failure;
use crate::http::read;

pub(super) fn command(verb: &dyn Fn(&'static str, &'static str) -> Command, topic: Arg) -> Command {
    verb("schema", "Show the schema of a topic, and which versions of it are kept").arg(topic).arg(
        Arg::new("version")
            .long("version")
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..))
            .help("This version, and nothing but its document [default: the one in force]"),
    )
}

/// Returns the flag `--force` of `topics set`.
pub(super) fn force_flag() -> Arg {
    Arg::new("force")
        .long("force")
        .action(ArgAction::SetTrue)
        .requires("schema")
        .help("Set the schema although retained events do not match it")
}

pub(super) fn run(matches: &ArgMatches, topic: &TopicName, mut call: TopicsCall) -> Result<(), Failure> {
    let wanted = matches.get_one::<u32>("version").copied();
    let mut path = format!("/topics/{topic}/schemas");
    path.extend(wanted.map(|version| format!("?version={version}")));
    let answer = call.http.request(Method::GET, &path, "")?;
    if call.json {
        return call.out.document(&answer);
    }
    let list: SchemaList = read(&answer)?;
    call.out.document(&shown(&list, wanted).join("\n"))
}

fn shown(list: &SchemaList, wanted: Option<u32>) -> Vec<String> {
    let mut lines = Vec::new();
    if wanted.is_none() {
        lines.push(match list.current {
            Some(version) => format!("topic {}: version {version} of its schema is in force", list.topic),
            None => format!("topic {} has no schema", list.topic),
        });
        lines.extend(list.versions.iter().map(|one| {
            let forced = if one.forced { ", forced" } else { "" };
            format!("version {} was set at {}{forced}", one.version, one.set)
        }));
    }
    let document = list.versions.iter().find(|one| wanted.or(list.current) == Some(one.version));
    lines.extend(document.and_then(|one| serde_json::to_string_pretty(&one.schema).ok()));
    lines
}
