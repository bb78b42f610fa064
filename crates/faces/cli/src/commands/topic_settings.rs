//! The settings of a topic on the command line: the flags of `topics create` and `topics set`, and their display.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_model::{AccessList, GroupKey, PARTITIONS_MAX};
use millrace_wire::http::TopicDoc;
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// The settings that can be set and unset: the flag, and the name in JSON.
const NAMES: [(&str, &str); 13] = [
    ("retention-ms", "retentionMs"),
    ("retention-bytes", "retentionBytes"),
    ("max-attempts", "maxAttempts"),
    ("ack-timeout-ms", "ackTimeoutMs"),
    ("dedupe-window-ms", "dedupeWindowMs"),
    ("durability", "durability"),
    ("compact", "compact"),
    ("ack-mode", "ackMode"),
    ("sticky", "sticky"),
    ("publish-acl", "publishACL"),
    ("subscribe-acl", "subscribeACL"),
    (GROUP_ACL, "groupACL"),
    (SCHEMA, "schema"),
];

/// The flag for one list per group: may be given several times, and can be unset for one group or for all.
const GROUP_ACL: &str = "group-acl";
/// The flag whose value is a file.
const SCHEMA: &str = "schema";
/// The flags whose value is an access list.
const LISTS: [&str; 2] = ["publish-acl", "subscribe-acl"];

pub(super) fn with_flags(command: Command) -> Command {
    let number = |name: &'static str, min: u64, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64).range(min..)).help(help)
    };
    let list = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("LIST").allow_hyphen_values(true).help(help)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(value_parser!(bool))
            .help(help)
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
                .help("How durable an event is once its publish is confirmed"),
        )
        .arg(switch("compact", "Keep only the newest event of each key"))
        .arg(
            Arg::new("ack-mode")
                .long("ack-mode")
                .value_name("cumulative|individual")
                .value_parser(["cumulative", "individual"])
                .help("The events that an ACK completes, for clients that do not say"),
        )
        .arg(switch("sticky", "Events of one key go to one member of a group, one at a time"))
        .arg(list(
            "publish-acl",
            "Agents and roles that may publish: * for all, !AGENT to deny; empty = nobody",
        ))
        .arg(list(
            "subscribe-acl",
            "Agents and roles that may read: * for all, !AGENT to deny; empty = nobody",
        ))
        .arg(
            list(
                GROUP_ACL,
                "Agents and roles that may join, seek and delete a group (* = every group without a list); repeatable",
            )
            .value_name("GROUP=LIST")
            .action(ArgAction::Append),
        )
        .arg(
            Arg::new(SCHEMA)
                .long(SCHEMA)
                .value_name("FILE")
                .allow_hyphen_values(true)
                .help("A JSON Schema (draft 2020-12) that every payload must match; - reads it from stdin"),
        )
}

pub(super) fn unset_flag() -> Arg {
    Arg::new("unset")
        .long("unset")
        .value_name("NAME")
        .action(ArgAction::Append)
        .help(
            "Take a setting back, so that the server's default holds again (group-acl=GROUP: the list of one group); \
             may be given several times",
        )
}

/// Returns the flags that were given, under their JSON names; `--unset` gives null.
pub(super) fn given(matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let mut given = Map::new();
    if let Some(partitions) = matches.get_one::<u64>("partitions") {
        given.insert("partitions".into(), json!(partitions));
    }
    if let Some(lists) = group_lists(matches)? {
        given.insert("groupACL".into(), Value::Object(lists));
    }
    for (flag, name) in NAMES.into_iter().filter(|(flag, _)| *flag != GROUP_ACL) {
        let number = matches.try_get_one::<u64>(flag).ok().flatten().map(|number| json!(number));
        let text = matches.try_get_one::<String>(flag).ok().flatten();
        let text = match text {
            Some(text) if LISTS.contains(&flag) => Some(json!(access_list(flag, text)?)),
            Some(file) if flag == SCHEMA => Some(read_schema(file)?),
            text => text.map(|text| json!(text)),
        };
        let flag_value = || matches.try_get_one::<bool>(flag).ok().flatten().map(|flag| json!(flag));
        if let Some(value) = number.or(text).or_else(flag_value) {
            given.insert(name.into(), value);
        }
    }
    let unset = matches.try_get_many::<String>("unset").ok().flatten().into_iter().flatten();
    for flag in unset {
        if let Some(group) = flag.strip_prefix(GROUP_ACL).and_then(|rest| rest.strip_prefix('=')) {
            unset_group(&mut given, group)?;
            continue;
        }
        let Some((_, name)) = NAMES.iter().find(|(known, _)| known == flag) else {
            let known = NAMES.map(|(flag, _)| flag).join(", ");
            return Err(Failure::Usage(format!("--unset {flag} is no setting: there are {known}")));
        };
        if given.insert((*name).into(), Value::Null).is_some_and(|value| !value.is_null()) {
            return Err(Failure::Usage(format!(
                "--{flag} and --unset {flag} are both given: give one of them"
            )));
        }
    }
    Ok(given)
}

/// Reads a schema from a file. Only the JSON is checked; the server checks whether it is a schema.
fn read_schema(file: &str) -> Result<Value, Failure> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        file => std::fs::read_to_string(file),
    };
    let text = text.map_err(|error| Failure::Usage(format!("--schema {file} cannot be read: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("--schema {file} is not valid JSON: {error}")))
}

/// Returns the `--group-acl GROUP=LIST` flags as a JSON object.
fn group_lists(matches: &ArgMatches) -> Result<Option<Map<String, Value>>, Failure> {
    let Some(flags) = matches.try_get_many::<String>(GROUP_ACL).ok().flatten() else { return Ok(None) };
    let mut lists = Map::new();
    for flag in flags {
        let (group, list) = flag.split_once('=').ok_or_else(|| {
            let what =
                format!("--{GROUP_ACL} {flag:?} names no list: write GROUP=LIST, or GROUP= for nobody");
            Failure::Usage(what)
        })?;
        let group = group_key(group)?;
        let list = json!(access_list(GROUP_ACL, list)?);
        if lists.insert(group.as_str().to_owned(), list).is_some() {
            return Err(Failure::Usage(format!("--{GROUP_ACL} names group {group} twice: give one list")));
        }
    }
    Ok(Some(lists))
}

/// Applies `--unset group-acl=GROUP`: removes the list of one group, the others stay.
fn unset_group(given: &mut Map<String, Value>, group: &str) -> Result<(), Failure> {
    let (group, lists) = (group_key(group)?, given.entry("groupACL").or_insert_with(|| json!({})));
    let already = lists.get(group.as_str()).is_some_and(|list| !list.is_null());
    if lists.is_null() || already {
        return Err(Failure::Usage(format!(
            "--unset {GROUP_ACL}={group} and another flag for {GROUP_ACL} contradict each other: give one of them"
        )));
    }
    lists[group.as_str()] = Value::Null;
    Ok(())
}

fn group_key(text: &str) -> Result<GroupKey, Failure> {
    GroupKey::new(text).map_err(|error| Failure::Usage(format!("--{GROUP_ACL}: {error}")))
}

/// Parses an access list. An empty text is the empty list, which allows nobody.
fn access_list(flag: &str, text: &str) -> Result<AccessList, Failure> {
    let entries: Vec<_> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    AccessList::new(entries.into_iter()).map_err(|error| Failure::Usage(format!("--{flag}: {error}")))
}

/// Returns every setting with its effective value, one line each. A server that does not report its defaults still has
/// some; they may differ from this program's.
pub(super) fn shown(doc: &TopicDoc) -> Vec<String> {
    let TopicDoc { config, defaults, schema_version, .. } = doc;
    let set = serde_json::to_value(config).unwrap_or_default();
    let defaults = serde_json::to_value(defaults).unwrap_or_default();
    let default_of = |name: &str| match (name, &defaults[name]) {
        ("publishACL" | "subscribeACL", _) => "everybody".to_owned(),
        ("groupACL", _) => "as subscribeACL says".to_owned(),
        ("compact" | "sticky", _) => "false".to_owned(),
        ("retentionMs" | "retentionBytes" | "schema", _) => "none".to_owned(),
        (_, Value::Null) => "as the server has it".to_owned(),
        (_, value) => plain(value),
    };
    let line = |name: &str| match set.get(name) {
        // `topics schema` shows the document.
        Some(_) if name == SCHEMA => format!("{name} version {}", schema_version.unwrap_or_default()),
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
