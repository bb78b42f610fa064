//! `millrace pub`: publishes one event, the same one many times, or one per line of stdin, and waits until each is
//! confirmed.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_client::{Client, JsonText, NewMessage, Place, Published, Receipt, TopicName};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Stdin, stdin};
use tokio::time::Instant;

use crate::commands::connect::with_client;
use crate::commands::progress::Progress;
use crate::commands::{json_flag, name_and_value, text};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::{Scope, args};

/// Publishes on their way at a time.
const INFLIGHT_MAX: usize = 512;
/// Longest line of stdin.
const LINE_BYTES_MAX: u64 = 16 << 20;

pub(super) fn command() -> Command {
    let number = || value_parser!(u64).range(1..);
    Command::new("pub")
        .about("Publish events and wait until they are confirmed")
        .arg(Arg::new("topic").value_name("TOPIC").required(true).help("The topic's name"))
        .arg(Arg::new("payload").value_name("JSON|-").help("The payload; -: one event per line of stdin"))
        .arg(Arg::new("key").long("key").value_name("K").help("Events with the same key stay in order"))
        .arg(
            Arg::new("header")
                .long("header")
                .value_name("N=V")
                .action(ArgAction::Append)
                .help("A header; may be given several times"),
        )
        .arg(
            Arg::new("delay-ms")
                .long("delay-ms")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .help("Deliver later"),
        )
        .arg(
            Arg::new("count").long("count").value_name("N").value_parser(number()).help("Publish it N times"),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("N")
                .value_parser(number())
                .help("At most N events per second"),
        )
        .arg(json_flag().help("Print each confirmation as it came"))
        .args(args(&[Scope::Client]))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let plan = Plan::of(matches)?;
    with_client(matches, |client| async move { plan.publish(&client).await })
}

struct Plan {
    topic: String,
    template: NewMessage,
    source: Source,
    rate: Option<u64>,
    json: bool,
}

enum Source {
    /// The template, this many times.
    Repeat(u64),
    Stdin,
}

impl Plan {
    fn of(matches: &ArgMatches) -> Result<Plan, Failure> {
        let topic = text(matches, "topic").unwrap_or_default();
        TopicName::new(topic).map_err(|error| Failure::Usage(error.to_string()))?;
        let count = matches.get_one::<u64>("count").copied();
        let payload = match text(matches, "payload") {
            None if std::io::stdin().is_terminal() => {
                return Err(Failure::Usage(
                    "the payload is missing: give JSON, or - to read one event per line".into(),
                ));
            }
            None | Some("-") => None,
            Some(text) => Some(JsonText::parse(text).map_err(|error| {
                Failure::Usage(format!(
                    "the payload is {text:?}: {error}; a string needs its quotes: '\"text\"'"
                ))
            })?),
        };
        if payload.is_none() && count.is_some() {
            return Err(Failure::Usage(
                "--count goes with a payload on the command line, not with stdin".into(),
            ));
        }
        let source = if payload.is_some() { Source::Repeat(count.unwrap_or(1)) } else { Source::Stdin };
        let mut template = NewMessage::new(payload.unwrap_or_else(JsonText::null));
        template.key = text(matches, "key").map(Into::into);
        for header in matches.get_many::<String>("header").into_iter().flatten() {
            let (name, value) = name_and_value("--header", header)?;
            template = template.header(name, value);
        }
        if let Some(delay_ms) = matches.get_one::<u64>("delay-ms") {
            template = template.delay_ms(*delay_ms);
        }
        let rate = matches.get_one::<u64>("rate").copied();
        Ok(Plan { topic: topic.into(), template, source, rate, json: matches.get_flag("json") })
    }

    async fn publish(self, client: &Client) -> Result<(), Failure> {
        let total = match self.source {
            Source::Repeat(count) => Some(count),
            Source::Stdin => None,
        };
        let mut run =
            Run { out: Output::new(), progress: Progress::new(total), json: self.json, done: 0, last: None };
        let mut feed = Feed { left: total, stdin: BufReader::new(stdin()), line: 0 };
        let start = Instant::now();
        let sent = self.send_all(client, &mut feed, &mut run, start).await;
        let Run { mut out, progress, done, last, .. } = run;
        progress.finish();
        if !self.json {
            let summary = match (total, last) {
                (Some(1), Some(published)) => one_line(&published),
                _ => format!(
                    "published {done} {} to {} in {:.3} s",
                    plural(done),
                    self.topic,
                    start.elapsed().as_secs_f64()
                ),
            };
            if sent.is_ok() || done > 0 {
                out.line(&summary)?;
            }
        }
        out.flush()?;
        sent
    }

    /// Whatever ends it, what was sent is awaited first: one bad event must not hide that others are stored.
    async fn send_all(
        &self,
        client: &Client,
        feed: &mut Feed,
        run: &mut Run,
        start: Instant,
    ) -> Result<(), Failure> {
        let mut receipts: VecDeque<Receipt> = VecDeque::new();
        let mut end = self.send_some(client, feed, run, start, &mut receipts).await;
        while !receipts.is_empty() {
            end = end.and(run.confirm_first(&mut receipts).await);
        }
        end
    }

    async fn send_some(
        &self,
        client: &Client,
        feed: &mut Feed,
        run: &mut Run,
        start: Instant,
        receipts: &mut VecDeque<Receipt>,
    ) -> Result<(), Failure> {
        let mut sent = 0u64;
        while let Some(message) = feed.next(&self.template).await? {
            if let Some(rate) = self.rate {
                tokio::time::sleep_until(start + Duration::from_secs_f64(sent as f64 / rate as f64)).await;
            }
            receipts.push_back(client.publish_nowait(&self.topic, message).await?);
            sent += 1;
            if receipts.len() >= INFLIGHT_MAX || self.rate.is_some() {
                run.confirm_first(receipts).await?;
            }
        }
        Ok(())
    }
}

/// What to publish next.
struct Feed {
    left: Option<u64>,
    stdin: BufReader<Stdin>,
    line: u64,
}

impl Feed {
    async fn next(&mut self, template: &NewMessage) -> Result<Option<NewMessage>, Failure> {
        if let Some(left) = &mut self.left {
            let more = *left > 0;
            *left = left.saturating_sub(1);
            return Ok(more.then(|| template.clone()));
        }
        loop {
            self.line += 1;
            let mut line = Vec::new();
            let read = (&mut self.stdin).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
            let text = self.checked(read.map(|_| line))?;
            if text.is_empty() {
                return Ok(None);
            }
            if text.trim().is_empty() {
                continue;
            }
            let payload = JsonText::parse(text.trim()).map_err(|error| self.failed(error))?;
            return Ok(Some(NewMessage { payload, ..template.clone() }));
        }
    }

    fn checked(&self, line: std::io::Result<Vec<u8>>) -> Result<String, Failure> {
        let line = line.map_err(|error| self.failed(error))?;
        if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            return Err(self.failed(format_args!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        String::from_utf8(line).map_err(|_| self.failed("it is not UTF-8"))
    }

    fn failed(&self, error: impl Display) -> Failure {
        Failure::Failed(format!("line {} of stdin: {error}", self.line))
    }
}

/// What has been confirmed.
struct Run {
    out: Output,
    progress: Progress,
    json: bool,
    done: u64,
    last: Option<Published>,
}

impl Run {
    async fn confirm_first(&mut self, receipts: &mut VecDeque<Receipt>) -> Result<(), Failure> {
        let Some(receipt) = receipts.pop_front() else { return Ok(()) };
        let published = receipt.await?;
        self.done += 1;
        self.progress.one_more();
        if self.json {
            let mut line = String::new();
            Published { rid: None, ..published.clone() }.write(&mut line);
            self.out.line(&line)?;
        }
        self.last = Some(published);
        Ok(())
    }
}

fn one_line(published: &Published) -> String {
    let Published { topic, id, durability, .. } = published;
    match published.place {
        Place::At { partition, offset } => {
            format!(
                "published to {topic}, partition {partition}, offset {offset}, id {id} ({})",
                durability.as_str()
            )
        }
        Place::Due(due) => format!("published to {topic}, due {due}, id {id} ({})", durability.as_str()),
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "event" } else { "events" }
}
