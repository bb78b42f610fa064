//! `millrace groups list|show|inflight|pause|resume`: the groups of a server's topics.

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_model::{Group, TopicName};
use millrace_wire::http::{GroupPage, GroupPaused, InflightList};
use ureq::http::Method;

use crate::commands::topics::TopicsCall;
use crate::commands::{json_flag, text};
use crate::failure::Failure;
use crate::http::{Http, read};
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    let topic = || Arg::new("topic").value_name("TOPIC").required(true).help("The topic's name");
    let group = || Arg::new("group").value_name("GROUP").required(true).help("The group's name");
    let verb = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Client])).arg(topic())
    };
    let limit = Arg::new("limit")
        .long("limit")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..=1000))
        .help("Events at most [default: 1000]");
    Command::new("groups")
        .about("Look at groups: how far behind, who works, what each holds; hold their deliveries back")
        .long_about(
            "Look at groups: how far behind, who works, what each holds; hold their deliveries back.\n\nMoving and \
             deleting a group: `millrace topics seek` and `millrace topics delete-group`.",
        )
        .subcommand_required(true)
        .subcommand(verb("list", "List the groups of a topic and how far they are"))
        .subcommand(verb("show", "Show a group: its lag in events and in time, its members").arg(group()))
        .subcommand(
            verb("inflight", "List events that a group was sent and that are not done").arg(group()).arg(limit),
        )
        .subcommand(
            verb("pause", "Hold a group's deliveries back, also over a restart, until it is resumed").arg(group()),
        )
        .subcommand(verb("resume", "Let a group's deliveries go on").arg(group()))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let usage = |error: millrace_model::NameError| Failure::Usage(error.to_string());
    let topic = TopicName::new(text(matches, "topic").unwrap_or_default()).map_err(usage)?;
    let (http, json, out) = (Http::new(&config)?, matches.get_flag("json"), Output::new());
    let Some(group) = text(matches, "group") else {
        return TopicsCall { http, json, out }.groups(&topic);
    };
    let path = format!("/topics/{topic}/groups/{}", Group::new(group).map_err(usage)?);
    let call = GroupCall { http, json, out, path };
    match verb {
        "show" => call.show(),
        "inflight" => call.inflight(matches.get_one("limit").copied()),
        verb => call.set_paused(verb),
    }
}

struct GroupCall {
    http: Http,
    json: bool,
    out: Output,
    path: String,
}

impl GroupCall {
    fn show(mut self) -> Result<(), Failure> {
        let body = self.http.request(Method::GET, &self.path, "")?;
        if self.json {
            return self.out.document(&body);
        }
        let group: GroupPage = read(&body)?;
        let behind = group.lag_ms.map_or_else(String::new, |ms| format!(", the oldest for {}", seconds(ms)));
        let paused = if group.paused { ", paused" } else { "" };
        let mut lines = vec![
            format!("group {} of topic {}{paused}", group.group, group.topic),
            format!("waiting {}{behind}; in flight {}", group.lag, group.inflight),
        ];
        let mut rows =
            vec![["PARTITION", "COMMITTED", "LAG", "INFLIGHT", "BEHIND"].map(String::from).to_vec()];
        rows.extend(group.partitions.iter().map(|one| {
            vec![
                one.partition.to_string(),
                one.at.committed.to_string(),
                one.at.lag.to_string(),
                one.at.inflight.to_string(),
                one.lag_ms.map_or_else(|| "-".to_owned(), seconds),
            ]
        }));
        lines.extend(columns(&rows));
        let mut rows = vec![["MEMBER", "AGENT", "FROM", "HOLDS", "OLDEST"].map(String::from).to_vec()];
        rows.extend(group.members.iter().map(|member| {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            vec![
                member.connection.to_string(),
                or_dash(&member.agent),
                or_dash(&member.peer),
                format!("{}/{}", member.inflight, member.max_inflight),
                member.oldest_ms.map_or_else(|| "-".to_owned(), seconds),
            ]
        }));
        match group.members.is_empty() {
            true => lines.push("nobody is subscribed".to_owned()),
            false => lines.extend(columns(&rows)),
        }
        self.out.document(&lines.join("\n"))
    }

    fn inflight(mut self, limit: Option<u64>) -> Result<(), Failure> {
        let limit = limit.map_or_else(String::new, |limit| format!("?limit={limit}"));
        let body = self.http.request(Method::GET, &format!("{}/inflight{limit}", self.path), "")?;
        if self.json {
            return self.out.document(&body);
        }
        let list: InflightList = read(&body)?;
        if list.inflight.is_empty() {
            return self.out.document("nothing is in flight");
        }
        let mut rows = vec![
            ["PARTITION", "OFFSET", "STATE", "MEMBER", "ATTEMPT", "LAST FAILURE"].map(String::from).to_vec(),
        ];
        rows.extend(list.inflight.iter().map(|one| {
            vec![
                one.partition.to_string(),
                one.offset.to_string(),
                one.state.clone(),
                one.connection.map_or_else(|| "-".to_owned(), |number| number.to_string()),
                one.attempts.to_string(),
                // Escaped, because the consumer that refused the event wrote it: it must not control the terminal.
                one.reason.as_deref().unwrap_or_default().escape_debug().to_string(),
            ]
        }));
        let mut lines = columns(&rows);
        if list.more {
            lines.push("there are more".to_owned());
        }
        self.out.document(&lines.join("\n"))
    }

    fn set_paused(mut self, verb: &str) -> Result<(), Failure> {
        let body = self.http.request(Method::POST, &format!("{}/{verb}", self.path), "")?;
        if self.json {
            return self.out.document(&body);
        }
        let GroupPaused { topic, group, paused } = read(&body)?;
        let state = if paused { "is paused: nothing is delivered to it" } else { "goes on" };
        self.out.document(&format!("group {group} of topic {topic} {state}"))
    }
}

/// A span of time as text: `1.2 s`.
fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}
