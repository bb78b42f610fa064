//! `millrace topics list|show|create|delete`; the verbs about groups are in [`topic_groups`].

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_model::{Durability, PARTITIONS_MAX, TopicConfig, TopicName};
use millrace_wire::http::{TopicBody, TopicDoc, TopicList, TopicOffsets};
use serde::de::DeserializeOwned;
use serde_json::json;
use ureq::http::Method;

use crate::commands::{json_flag, text, topic_groups};
use crate::failure::Failure;
use crate::http::Http;
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Client]))
    };
    let topic = || Arg::new("topic").value_name("TOPIC").required(true).help("The topic's name");
    let number = |name: &'static str, min: u64, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64).range(min..)).help(help)
    };
    let create = verb("create", "Create a topic")
        .arg(topic())
        .arg(
            Arg::new("partitions")
                .long("partitions")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=i64::from(PARTITIONS_MAX)))
                .help("Partitions; may only grow later [default: 1]"),
        )
        .arg(number("retention-ms", 1, "Forget events older than this"))
        .arg(number("retention-bytes", 1, "Forget the oldest events above this size"))
        .arg(
            Arg::new("max-attempts")
                .long("max-attempts")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
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
                .action(ArgAction::SetTrue)
                .help("Keep only the newest event of each key"),
        );
    Command::new("topics")
        .about("Topics and their groups: list, show, create, seek, delete")
        .subcommand_required(true)
        .subcommand(verb("list", "List all topics"))
        .subcommand(verb("show", "Show a topic, its settings and how far its groups are").arg(topic()))
        .subcommand(create)
        .subcommand(verb("delete", "Delete a topic and all its events").arg(topic()))
        .subcommands(topic_groups::commands(&verb, &topic))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let topic = text(matches, "topic").map(TopicName::new).transpose();
    let topic = topic.map_err(|error| Failure::Usage(error.to_string()))?;
    let call = Call { http: Http::new(&config)?, json: matches.get_flag("json"), out: Output::new() };
    match (verb, topic) {
        ("list", _) => call.list(),
        ("show", Some(topic)) => call.show(&topic),
        ("create", Some(topic)) => call.create(&TopicBody { topic, config: topic_config(matches) }),
        ("delete", Some(topic)) => call.delete(&topic),
        (verb, Some(topic)) => topic_groups::run(verb, matches, &topic, call),
        _ => Ok(()),
    }
}

fn topic_config(matches: &ArgMatches) -> TopicConfig {
    let number = |name| matches.get_one::<u64>(name).copied();
    TopicConfig {
        partitions: matches.get_one("partitions").copied().unwrap_or(1),
        retention_ms: number("retention-ms"),
        retention_bytes: number("retention-bytes"),
        max_attempts: matches.get_one("max-attempts").copied(),
        ack_timeout_ms: number("ack-timeout-ms"),
        dedupe_window_ms: number("dedupe-window-ms"),
        durability: text(matches, "durability").map(|level| match level {
            "memory" => Durability::Memory,
            "os" => Durability::Os,
            _ => Durability::Fsync,
        }),
        compact: matches.get_flag("compact"),
    }
}

pub(super) struct Call {
    pub(super) http: Http,
    pub(super) json: bool,
    pub(super) out: Output,
}

impl Call {
    fn list(mut self) -> Result<(), Failure> {
        let body = self.http.ask(Method::GET, "/topics", "")?;
        if self.json {
            return self.print(&body);
        }
        let list: TopicList = read(&body)?;
        let mut rows = vec![["TOPIC", "PARTITIONS", "EVENTS", "GROUPS"].map(String::from).to_vec()];
        rows.extend(list.topics.iter().map(|topic| {
            let events: u64 =
                topic.streams.iter().map(|stream| stream.next.0.saturating_sub(stream.start.0)).sum();
            let counts =
                [topic.config.partitions.to_string(), events.to_string(), topic.groups.len().to_string()];
            std::iter::once(topic.topic.to_string()).chain(counts).collect()
        }));
        self.print(&columns(&rows).join("\n"))
    }

    fn show(mut self, topic: &TopicName) -> Result<(), Failure> {
        let doc: TopicDoc = read(&self.http.ask(Method::GET, &format!("/topics/{topic}"), "")?)?;
        let offsets: TopicOffsets =
            read(&self.http.ask(Method::GET, &format!("/topics/{topic}/offsets"), "")?)?;
        if self.json {
            self.out.json(
                &json!({ "topic": doc.topic, "config": doc.config, "partitions": offsets.partitions }),
            )?;
            return self.out.flush();
        }
        let mut lines = vec![format!("topic {topic}")];
        lines.extend(settings_of(&doc.config));
        let mut rows = vec![
            ["PARTITION", "START", "NEXT", "GROUP", "COMMITTED", "LAG", "INFLIGHT"]
                .map(String::from)
                .to_vec(),
        ];
        for part in &offsets.partitions {
            let place = [part.partition.to_string(), part.start.to_string(), part.next.to_string()];
            if part.groups.is_empty() {
                rows.push(place.to_vec());
            }
            for (group, at) in &part.groups {
                let numbers = [at.committed.to_string(), at.lag.to_string(), at.inflight.to_string()];
                rows.push(place.iter().cloned().chain([group.to_string()]).chain(numbers).collect());
            }
        }
        lines.extend(columns(&rows));
        self.print(&lines.join("\n"))
    }

    fn create(mut self, body: &TopicBody) -> Result<(), Failure> {
        let mut text = String::new();
        body.write(&mut text);
        let answer = self.http.ask(Method::POST, "/topics", &text)?;
        if self.json {
            return self.print(&answer);
        }
        let doc: TopicDoc = read(&answer)?;
        self.print(&format!("topic {} has {} partitions", doc.topic, doc.config.partitions))
    }

    fn delete(mut self, topic: &TopicName) -> Result<(), Failure> {
        self.http.ask(Method::DELETE, &format!("/topics/{topic}"), "")?;
        let line = if self.json {
            json!({ "deleted": topic }).to_string()
        } else {
            format!("topic {topic} is deleted")
        };
        self.print(&line)
    }

    pub(super) fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.out.line(text.trim_end())?;
        self.out.flush()
    }
}

/// What the topic's owner has set, one line each.
fn settings_of(config: &TopicConfig) -> Vec<String> {
    let value = serde_json::to_value(config).unwrap_or_default();
    let members = value.as_object().cloned().unwrap_or_default();
    members
        .iter()
        .map(|(name, value)| format!("{name} {}", value.as_str().unwrap_or(&value.to_string())))
        .collect()
}

pub(super) fn read<T: DeserializeOwned>(body: &str) -> Result<T, Failure> {
    serde_json::from_str(body)
        .map_err(|error| Failure::Failed(format!("the server's answer makes no sense: {error}")))
}
