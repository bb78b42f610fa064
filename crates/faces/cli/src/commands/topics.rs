//! `millrace topics list|show|create|set|seek|delete`; `groups` and `delete-group` are in [`topic_groups`], `schema` is
//! in [`topic_schema`].

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_client::StartFrom;
use millrace_model::{Group, TopicName};
use millrace_wire::http::{Sought, TopicDoc, TopicList, TopicOffsets};
use serde_json::{Map, Value, json};
use ureq::http::Method;

use crate::commands::subscribe::start_from;
use crate::commands::topic_settings::{given, shown, unset_flag, with_flags};
use crate::commands::{json_flag, text, topic_groups, topic_schema};
use crate::failure::Failure;
use crate::http::{Http, read};
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Client]))
    };
    let topic = || Arg::new("topic").value_name("TOPIC").required(true).help("The topic's name");
    let seek = verb("seek", "Move a group whose members hold no events")
        .arg(topic())
        .arg(Arg::new("group").value_name("GROUP").required(true).help("The group's name"))
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("earliest|latest|offset:N|timestamp:MS")
                .required(true)
                .help("Where the group goes on"),
        )
        .arg(
            Arg::new("partition")
                .long("partition")
                .value_name("N")
                .value_parser(value_parser!(u32))
                .help("Only this partition [default: all]"),
        );
    Command::new("topics")
        .about("List, show, create, change and delete topics, and move their groups")
        .subcommand_required(true)
        .subcommand(verb("list", "List all topics").long_about(
            "List all topics.\n\nEVENTS counts offsets from the first one still there. Of a compacted topic some of them \
             are gone, so that is the most there can be, shown as <=N.",
        ))
        .subcommand(verb("show", "Show a topic, its settings and how far its groups are").arg(topic()))
        .subcommand(with_flags(verb("create", "Create a topic that does not exist yet").arg(topic())))
        .subcommand(with_flags(
            verb("set", "Change settings of a topic; the others stay")
                .arg(topic())
                .arg(unset_flag())
                .arg(topic_schema::force_flag()),
        ))
        .subcommand(seek)
        .subcommand(verb("delete", "Delete a topic and all its events").arg(topic()))
        .subcommand(topic_schema::command(&verb, topic()))
        .subcommands(topic_groups::commands(&verb, &topic))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let usage = |error: millrace_model::NameError| Failure::Usage(error.to_string());
    let topic = text(matches, "topic").map(TopicName::new).transpose().map_err(usage)?;
    let http = Http::new(&config)?;
    let call = TopicsCall { http, json: matches.get_flag("json"), out: Output::new() };
    match (verb, topic) {
        ("list", _) => call.list(),
        ("show", Some(topic)) => call.show(&topic),
        ("create", Some(topic)) => call.create(&topic, given(matches)?),
        ("set", Some(topic)) => call.set(&topic, given(matches)?, matches.get_flag("force")),
        ("schema", Some(topic)) => topic_schema::run(matches, &topic, call),
        ("seek", Some(topic)) => {
            let group = Group::new(text(matches, "group").unwrap_or_default()).map_err(usage)?;
            let from = start_from(text(matches, "from").unwrap_or_default())?;
            call.seek(&topic, &group, from, matches.get_one::<u32>("partition").copied())
        }
        ("delete", Some(topic)) => call.delete(&topic),
        (verb, Some(topic)) => topic_groups::run(verb, matches, &topic, call),
        _ => Ok(()),
    }
}

pub(super) struct TopicsCall {
    pub(super) http: Http,
    pub(super) json: bool,
    pub(super) out: Output,
}

impl TopicsCall {
    fn list(mut self) -> Result<(), Failure> {
        let list = self.http.list("/topics", "topics")?.to_string();
        if self.json {
            return self.out.document(&list);
        }
        let list: TopicList = read(&list)?;
        let mut rows = vec![["TOPIC", "PARTITIONS", "EVENTS", "GROUPS"].map(String::from).to_vec()];
        rows.extend(list.topics.iter().map(|topic| {
            let events: u64 =
                topic.streams.iter().map(|stream| stream.next.0.saturating_sub(stream.start.0)).sum();
            // The number of events left by compaction is not known: the offsets in use are an upper bound.
            let at_most = if topic.config.compact && events > 0 { "<=" } else { "" };
            let counts = [
                topic.config.partitions.to_string(),
                format!("{at_most}{events}"),
                topic.groups.len().to_string(),
            ];
            std::iter::once(topic.topic.to_string()).chain(counts).collect()
        }));
        self.out.document(&columns(&rows).join("\n"))
    }

    fn show(mut self, topic: &TopicName) -> Result<(), Failure> {
        let doc: TopicDoc = read(&self.http.request(Method::GET, &format!("/topics/{topic}"), "")?)?;
        let offsets: TopicOffsets =
            read(&self.http.request(Method::GET, &format!("/topics/{topic}/offsets"), "")?)?;
        if self.json {
            self.out.json(
                &json!({ "topic": doc.topic, "config": doc.config, "schemaVersion": doc.schema_version, "defaults": doc.defaults, "partitions": offsets.partitions }),
            )?;
            return self.out.flush();
        }
        let mut lines = vec![format!("topic {topic}")];
        lines.extend(shown(&doc));
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
        self.out.document(&lines.join("\n"))
    }

    /// Creates a topic. The server's own create would replace the settings of an existing topic, which a user of
    /// «create» does not mean.
    fn create(mut self, topic: &TopicName, mut settings: Map<String, Value>) -> Result<(), Failure> {
        settings.insert("topic".into(), json!(topic));
        let Some(answer) = self.http.make("/topics", &Value::Object(settings).to_string())? else {
            return Err(Failure::Failed(format!(
                "topic {topic} exists already: change its settings with `millrace topics set {topic}`, for example \
                 with --retention-ms N"
            )));
        };
        if self.json {
            return self.out.document(&answer);
        }
        let doc: TopicDoc = read(&answer)?;
        self.out.document(&format!("topic {} has {}", doc.topic, partitions(doc.config.partitions)))
    }

    fn set(mut self, topic: &TopicName, settings: Map<String, Value>, force: bool) -> Result<(), Failure> {
        if settings.is_empty() {
            return Err(Failure::Usage(
                "nothing to set: give a setting such as --retention-ms N, or --unset NAME".into(),
            ));
        }
        let body = Value::Object(settings).to_string();
        let query = if force { "?force=true" } else { "" };
        let answer = self.http.request(Method::PATCH, &format!("/topics/{topic}{query}"), &body)?;
        if self.json {
            return self.out.document(&answer);
        }
        let doc: TopicDoc = read(&answer)?;
        let lines: Vec<_> = std::iter::once(format!("topic {topic}")).chain(shown(&doc)).collect();
        self.out.document(&lines.join("\n"))
    }

    fn seek(
        mut self,
        topic: &TopicName,
        group: &Group,
        from: StartFrom,
        partition: Option<u32>,
    ) -> Result<(), Failure> {
        let from = match from {
            StartFrom::Earliest => json!({ "kind": "earliest" }),
            StartFrom::Latest => json!({ "kind": "latest" }),
            StartFrom::Offset(offset) => json!({ "kind": "offset", "value": offset.0 }),
            StartFrom::Timestamp(ts) => json!({ "kind": "timestamp", "value": ts.0 }),
        };
        let body = json!({ "from": from, "partition": partition }).to_string();
        let answer =
            self.http.request(Method::POST, &format!("/topics/{topic}/groups/{group}/seek"), &body)?;
        if self.json {
            return self.out.document(&answer);
        }
        let sought: Sought = read(&answer)?;
        let mut rows = vec![["PARTITION", "NEXT"].map(String::from).to_vec()];
        rows.extend(sought.partitions.iter().map(|at| vec![at.partition.to_string(), at.next.to_string()]));
        let lines: Vec<_> = std::iter::once(format!("group {group} of topic {topic} goes on at"))
            .chain(columns(&rows))
            .collect();
        self.out.document(&lines.join("\n"))
    }

    fn delete(mut self, topic: &TopicName) -> Result<(), Failure> {
        self.http.request(Method::DELETE, &format!("/topics/{topic}"), "")?;
        let line = if self.json {
            json!({ "deleted": topic }).to_string()
        } else {
            format!("topic {topic} is deleted")
        };
        self.out.document(&line)
    }
}

fn partitions(count: u32) -> String {
    format!("{count} {}", if count == 1 { "partition" } else { "partitions" })
}
