//! `millrace dead-letters list|replay`.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_model::{Offset, TopicName};
use millrace_wire::Envelope;
use millrace_wire::http::{ChosenReplayed, DeadLetters, EventsPage, Replayed};
use serde_json::json;
use ureq::http::Method;

use crate::commands::tally::events;
use crate::commands::{json_flag, letter_edit, text};
use crate::failure::Failure;
use crate::http::{Http, read};
use crate::log;
use crate::output::{Output, columns};
use crate::settings::{Scope, args, resolve};

pub(super) fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| {
        let command = Command::new(name).about(about).arg(json_flag()).args(args(&[Scope::Client]));
        command
            .arg(
                Arg::new("partition")
                    .long("partition")
                    .value_name("N")
                    .value_parser(value_parser!(u32))
                    .help("Partition of the dead-letter topic [default: 0]"),
            )
            .arg(
                Arg::new("offset")
                    .long("offset")
                    .value_name("N")
                    .value_parser(value_parser!(u64))
                    .help("The first letter's offset [default: the first there is]"),
            )
            .arg(
                Arg::new("limit")
                    .long("limit")
                    .value_name("N")
                    .value_parser(value_parser!(u64).range(1..=10_000))
                    .help("Letters at most [default: 100]"),
            )
    };
    let topic = || Arg::new("topic").value_name("TOPIC").help("The topic whose events became dead letters");
    Command::new("dead-letters")
        .about("List events that used up their attempts, and publish them again")
        .subcommand_required(true)
        .subcommand(verb("list", "List topics and handlers with dead letters, or the letters of a topic").arg(topic()))
        .subcommand(
            verb("replay", "Publish the letters of a topic to it again")
                .long_about(
                    "Publish the letters of a topic to it again.\n\nEvery group of the topic receives them. A letter \
                     that was replayed already is not stored a second time within the topic's dedupe window.\n\nWith \
                     --edit and --offset one letter is opened in $VISUAL or $EDITOR: key, headers and payload. What \
                     is left there is published, marked with the header x-replayed-edited.",
                )
                .arg(topic().required(true))
                .arg(
                    Arg::new("edit")
                        .long("edit")
                        .action(ArgAction::SetTrue)
                        .requires("offset")
                        .conflicts_with("limit")
                        .help("Change the letter at --offset in an editor before"),
                ),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let topic = text(matches, "topic").map(TopicName::new).transpose();
    let topic = topic.map_err(|error| Failure::Usage(error.to_string()))?;
    let call = DeadLettersCall {
        http: Http::new(&config)?,
        json: matches.get_flag("json"),
        out: Output::new(),
        partition: matches.get_one("partition").copied(),
        offset: matches.get_one("offset").copied(),
        limit: matches.get_one("limit").copied(),
    };
    match (verb, topic) {
        ("list", None) => call.list(),
        ("list", Some(topic)) => call.letters(&topic),
        ("replay", Some(topic)) if matches.get_flag("edit") => call.replay_edited(&topic),
        ("replay", Some(topic)) => call.replay(&topic),
        _ => Ok(()),
    }
}

struct DeadLettersCall {
    http: Http,
    json: bool,
    out: Output,
    partition: Option<u32>,
    offset: Option<u64>,
    limit: Option<u64>,
}

impl DeadLettersCall {
    fn list(mut self) -> Result<(), Failure> {
        if self.partition.is_some() || self.offset.is_some() || self.limit.is_some() {
            return Err(Failure::Usage("--partition, --offset and --limit go with a TOPIC".into()));
        }
        let list = self.http.list("/dead-letters", "deadLetters")?.to_string();
        if self.json {
            return self.out.document(&list);
        }
        let list: DeadLetters = read(&list)?;
        let mut tables = Vec::new();
        if !list.dead_letters.is_empty() {
            let mut rows = vec![["TOPIC", "LETTERS", "KEPT IN"].map(String::from).to_vec()];
            let of_groups = list.dead_letters.iter();
            rows.extend(
                of_groups.map(|of| vec![of.topic.to_string(), of.count.to_string(), of.dlq.to_string()]),
            );
            tables.push(columns(&rows).join("\n"));
        }
        if !list.handlers.is_empty() {
            let mut rows = vec![["HANDLER", "TOPIC", "LETTERS"].map(String::from).to_vec()];
            let of_handlers = list.handlers.iter();
            rows.extend(
                of_handlers.map(|of| vec![of.handler.clone(), of.topic.to_string(), of.count.to_string()]),
            );
            tables.push(columns(&rows).join("\n"));
        }
        match tables.is_empty() {
            true => self.out.document("no topic has dead letters"),
            false => self.out.document(&tables.join("\n\n")),
        }
    }

    fn letters(mut self, topic: &TopicName) -> Result<(), Failure> {
        let mut path = format!("/dead-letters?topic={topic}");
        let numbers =
            [("partition", self.partition.map(u64::from)), ("from", self.offset), ("limit", self.limit)];
        for (name, number) in numbers {
            path.extend(number.map(|number| format!("&{name}={number}")));
        }
        let body = self.http.request(Method::GET, &path, "")?;
        if self.json {
            return self.out.document(&body);
        }
        let page = EventsPage::parse(&body)
            .map_err(|error| Failure::Failed(format!("the server's answer makes no sense: {error}")))?;
        if page.events.is_empty() && self.offset.is_none() {
            return self.out.document(&format!("topic {topic} has no dead letters"));
        }
        let head = ["OFFSET", "TIME", "GROUP", "ATTEMPTS", "OF OFFSET", "REASON", "PAYLOAD"];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.extend(page.events.iter().map(row));
        self.out.document(&columns(&rows).join("\n"))
    }

    fn replay(mut self, topic: &TopicName) -> Result<(), Failure> {
        let body =
            json!({ "partition": self.partition, "offset": self.offset, "limit": self.limit }).to_string();
        let answer = self.http.request(Method::POST, &format!("/dead-letters/{topic}/replay"), &body)?;
        if self.json {
            return self.out.document(&answer);
        }
        let Replayed { topic, replayed, duplicates, next, more, .. } = read(&answer)?;
        let mut said = format!("replayed {} to {topic}", events(replayed));
        if duplicates > 0 {
            said +=
                &format!("; {duplicates} had been replayed before and {} not stored again", were(duplicates));
        }
        if more {
            said += &format!("; more begin at offset {next}");
        }
        self.out.document(&said)
    }

    fn replay_edited(mut self, topic: &TopicName) -> Result<(), Failure> {
        let (partition, offset) = (self.partition.unwrap_or(0), self.offset.unwrap_or(0));
        let path = format!("/dead-letters?topic={topic}&partition={partition}&from={offset}&limit=1");
        let page = EventsPage::parse(&self.http.request(Method::GET, &path, "")?)
            .map_err(|error| Failure::Failed(format!("the server's answer makes no sense: {error}")))?;
        let letter = page.events.first().filter(|letter| letter.offset == Offset(offset));
        let letter = letter.ok_or_else(|| {
            Failure::Failed(format!(
                "topic {topic} has no dead letter at partition {partition}, offset {offset}"
            ))
        })?;
        let Some(request) = letter_edit::edited(letter, partition, letter.offset)? else {
            return self.out.document("nothing was changed, so nothing was replayed");
        };
        let answer = self.http.request(Method::POST, &format!("/dead-letters/{topic}/replay"), &request)?;
        if self.json {
            return self.out.document(&answer);
        }
        let told: ChosenReplayed = read(&answer)?;
        let said = match (told.published.first(), told.duplicates) {
            (Some((partition, offset)), 0) => {
                format!(
                    "replayed the edited letter to {}, partition {partition}, offset {offset}",
                    told.topic
                )
            }
            (Some((partition, offset)), _) => {
                format!("the same edit was replayed before: it is at partition {partition}, offset {offset}")
            }
            (None, _) => return Err(Failure::Failed("the letter is not there any more".into())),
        };
        self.out.document(&said)
    }
}

fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Returns the cells of a dead letter: what its headers say about the failure, and the payload.
fn row(letter: &Envelope) -> Vec<String> {
    let header =
        |name: &str| letter.headers.as_ref().and_then(|headers| headers.get(name)).unwrap_or_default();
    vec![
        letter.offset.to_string(),
        letter.ts.to_string(),
        header("x-dlq-group"),
        header("x-dlq-attempts"),
        format!("{}/{}", header("x-dlq-partition"), header("x-dlq-offset")),
        // Escaped, because the consumer that refused the event wrote the reason: it must not control the terminal.
        header("x-dlq-reason").escape_debug().to_string(),
        letter.payload.as_str().to_owned(),
    ]
}
