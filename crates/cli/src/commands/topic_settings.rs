//! The settings of a topic on the command line: the flags of `topics create` and `topics set`, and how they are shown.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_model::{AccessList, PARTITIONS_MAX, TopicConfig};
use millrace_wire::http::TopicDefaults;
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// What can be set and taken back: the flag, and the name in JSON.
const NAMES: [(&str, &str); 9] = [
    ("retention-ms", "retentionMs"),
    ("retention-bytes", "retentionBytes"),
    ("max-attempts", "maxAttempts"),
    ("ack-timeout-ms", "ackTimeoutMs"),
    ("dedupe-window-ms", "dedupeWindowMs"),
    ("durability", "durability"),
    ("compact", "compact"),
    ("publish-acl", "publishACL"),
    ("subscribe-acl", "subscribeACL"),
];

/// Flags whose value is an access list.
const LISTS: [&str; 2] = ["publish-acl", "subscribe-acl"];

pub(super) fn with_flags(command: Command) -> Command {
    let number = |name: &'static str, min: u64, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64).range(min..)).help(help)
    };
    let list = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("LIST").allow_hyphen_values(true).help(help)
    };
    command
        .arg(
            Arg::new("partitions")
                .long("partitions")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=u64::from(PARTITIONS_MAX)))
                .help("Partitions; may only grow later [default: 1]"),
        )
        .arg(number("retention-ms", 1, "Forget events older than this"))
        .arg(number("retention-bytes", 1, "Forget the oldest events above this size"))
        .arg(
            Arg::new("max-attempts")
                .long("max-attempts")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=u64::from(u32::MAX)))
                .help("Deliveries before an event is dead-lettered"),
        )
        .arg(number("ack-timeout-ms", 1, "An event not acknowledged after this long is delivered again"))
        .arg(number("dedupe-window-ms", 0, "How long an id makes a second event a duplicate"))
        .arg(
            Arg::new("durability")
                .long("durability")
                .value_name("fsync|os|memory")
                .value_parser(["fsync", "os", "memory"])
                .help("What a confirmed publish has survived"),
        )
        .arg(
            Arg::new("compact")
                .long("compact")
                .value_name("BOOL")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(value_parser!(bool))
                .help("Keep only the newest event of each key"),
        )
        .arg(list(
            "publish-acl",
            "Who may publish: agents and roles, * for all, !AGENT to deny; empty = nobody",
        ))
        .arg(list(
            "subscribe-acl",
            "Who may read: agents and roles, * for all, !AGENT to deny; empty = nobody",
        ))
}

pub(super) fn unset_flag() -> Arg {
    Arg::new("unset")
        .long("unset")
        .value_name("NAME")
        .action(ArgAction::Append)
        .value_parser(NAMES.map(|(flag, _)| flag))
        .help("Take a setting back, so that the server's default holds again; may be given several times")
}

/// The flags that were given, under the names of JSON; `--unset` gives null.
pub(super) fn given(matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let mut given = Map::new();
    if let Some(partitions) = matches.get_one::<u64>("partitions") {
        given.insert("partitions".into(), json!(partitions));
    }
    for (flag, name) in NAMES {
        let number = matches.try_get_one::<u64>(flag).ok().flatten().map(|number| json!(number));
        let text = matches.try_get_one::<String>(flag).ok().flatten();
        let text = match text {
            Some(text) if LISTS.contains(&flag) => Some(json!(access_list(flag, text)?)),
            text => text.map(|text| json!(text)),
        };
        let flag_value = || matches.try_get_one::<bool>(flag).ok().flatten().map(|flag| json!(flag));
        if let Some(value) = number.or(text).or_else(flag_value) {
            given.insert(name.into(), value);
        }
    }
    let unset = matches.try_get_many::<String>("unset").ok().flatten().into_iter().flatten();
    for flag in unset {
        let Some((_, name)) = NAMES.iter().find(|(known, _)| known == flag) else { continue };
        if given.insert((*name).into(), Value::Null).is_some_and(|value| !value.is_null()) {
            return Err(Failure::Usage(format!(
                "--{flag} and --unset {flag} are both given: give one of them"
            )));
        }
    }
    Ok(given)
}

/// An empty text is the empty list: nobody.
fn access_list(flag: &str, text: &str) -> Result<AccessList, Failure> {
    let entries: Vec<_> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    AccessList::new(entries.into_iter()).map_err(|error| Failure::Usage(format!("--{flag}: {error}")))
}

/// Every setting with the value that holds, one line each. A server that does not tell its defaults has some all the
/// same; those of this program may be others.
pub(super) fn shown(config: &TopicConfig, defaults: Option<&TopicDefaults>) -> Vec<String> {
    let set = serde_json::to_value(config).unwrap_or_default();
    let defaults = serde_json::to_value(defaults).unwrap_or_default();
    let default_of = |name: &str| match (name, &defaults[name]) {
        ("publishACL" | "subscribeACL", _) => "everybody".to_owned(),
        ("compact", _) => "false".to_owned(),
        ("retentionMs" | "retentionBytes", _) => "none".to_owned(),
        (_, Value::Null) => "as the server has it".to_owned(),
        (_, value) => plain(value),
    };
    let line = |name: &str| match set.get(name) {
        Some(value) => format!("{name} {}", plain(value)),
        None => format!("{name} {} (default)", default_of(name)),
    };
    let names = std::iter::once("partitions").chain(NAMES.map(|(_, name)| name));
    let mut lines: Vec<_> = names.map(line).collect();
    if lines.iter().any(|line| line.ends_with("(default)")) {
        lines.push("(default): not set for this topic, the server's own value holds".into());
    }
    lines
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
