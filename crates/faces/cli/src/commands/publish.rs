//! `millrace pub`: publishes one event, the same event many times, or one event per line of stdin, and waits until each
//! is confirmed. However the command ends, it prints how many were confirmed.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_client::{
    Client, ClientError, ErrorCode, JsonText, NewMessage, Published, PublishedPlace, Receipt, TopicName,
};
use tokio::time::Instant;

use crate::commands::connect::with_client;
use crate::commands::feed::{Fed, StdinFeed, at_line};
use crate::commands::progress::Progress;
use crate::commands::tally::{Tally, events};
use crate::commands::{json_flag, name_and_value, text};
use crate::failure::Failure;
use crate::output::Printer;
use crate::settings::{Scope, args, resolve};

/// The most publishes that wait for their confirmation at a time.
const INFLIGHT_MAX: usize = 512;
const RATE_ADVICE: &str = "--rate N publishes at most N events per second";
/// A generous bound for the bytes of a frame beside payload, key and headers.
const FRAME_REST_BYTES: usize = 1024;
/// The most bytes that an escaped byte of a key or header takes, as in `\u0000`.
const ESCAPED_BYTES_MAX: usize = 6;

pub(super) fn command() -> Command {
    let number = || value_parser!(u64).range(1..);
    Command::new("pub")
        .about("Publish events and wait until they are confirmed")
        .arg(Arg::new("topic").value_name("TOPIC").required(true).help("The topic's name"))
        .arg(Arg::new("payload").value_name("JSON|-").help("The payload; - or nothing: one event per line of stdin"))
        .arg(Arg::new("key").long("key").value_name("K").help("Events with the same key stay in order"))
        .arg(
            Arg::new("header")
                .long("header")
                .value_name("N=V")
                .action(ArgAction::Append)
                .help("A header; may be given several times"),
        )
        .arg(Arg::new("id").long("id").value_name("ID").help(
            "The event's id, 1 to 255 printable ASCII characters: published again with it, the event is stored once",
        ))
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
    let plan = PublishPlan::of(matches)?;
    let tally = Rc::new(Tally::new(plan.count));
    let counts = tally.clone();
    let ended = with_client(matches, |client| async move { plan.publish(&client, &counts).await });
    match ended {
        Err(Failure::Interrupted(_)) => Err(Failure::Interrupted(Some(format!("interrupted: {tally}")))),
        ended => ended,
    }
}

struct PublishPlan {
    topic: String,
    template: NewMessage,
    /// How many times the template is published; `None` = one event per line of stdin.
    count: Option<u64>,
    rate: Option<u64>,
    json: bool,
    frame_bytes_max: usize,
}

impl PublishPlan {
    fn of(matches: &ArgMatches) -> Result<PublishPlan, Failure> {
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
        let count = payload.as_ref().map(|_| count.unwrap_or(1));
        let mut template = NewMessage::new(payload.unwrap_or_else(JsonText::null));
        template.key = text(matches, "key").map(Into::into);
        for header in matches.get_many::<String>("header").into_iter().flatten() {
            let (name, value) = name_and_value("--header", header)?;
            template = template.header(name, value);
        }
        if let Some(delay_ms) = matches.get_one::<u64>("delay-ms") {
            template = template.delay_ms(*delay_ms);
        }
        if let Some(id) = text(matches, "id") {
            if count != Some(1) {
                return Err(Failure::Usage(
                    "--id goes with one event: with the same id all others would be duplicates of it".into(),
                ));
            }
            template = template.id(id)?;
        }
        let rate = matches.get_one::<u64>("rate").copied();
        let frame_bytes_max = resolve(matches)?.config.server.frame_bytes_max;
        let json = matches.get_flag("json");
        Ok(PublishPlan { topic: topic.into(), template, count, rate, json, frame_bytes_max })
    }

    async fn publish(self, client: &Client, tally: &Rc<Tally>) -> Result<(), Failure> {
        let mut run = PublishRun {
            out: Printer::new(),
            progress: Progress::new(self.count),
            json: self.json,
            tally: tally.clone(),
            receipts: VecDeque::new(),
            last: None,
        };
        let start = Instant::now();
        let sent = self.send_all(client, &mut run, start).await;
        let PublishRun { mut out, progress, last, .. } = run;
        drop(progress);
        let mut written = Ok(());
        if !self.json && (sent.is_ok() || tally.confirmed_count() > 0) {
            let summary = match last {
                Some(published) if self.count == Some(1) => one_line(&published),
                _ => format!(
                    "published {} to {} in {:.3} s",
                    events(tally.confirmed_count()),
                    self.topic,
                    start.elapsed().as_secs_f64()
                ),
            };
            written = out.line(&summary).await;
        }
        let ended = sent.and(written).and(out.flush().await);
        match ended {
            Ok(()) => Ok(()),
            // Everything is published and the reader of stdout has closed it, which is a success for any command.
            Err(Failure::PipeClosed) if tally.is_complete() => Err(Failure::PipeClosed),
            Err(Failure::PipeClosed) => Err(Failure::Failed(format!("stdout is closed: {tally}"))),
            Err(failure) if self.count == Some(1) && !tally.is_unsure() => Err(failure),
            Err(failure) => Err(failure.adding(&tally.to_string())),
        }
    }

    /// Sends all events, then waits for every confirmation, also after an error: one bad event must not hide that
    /// others are stored.
    async fn send_all(&self, client: &Client, run: &mut PublishRun, start: Instant) -> Result<(), Failure> {
        let end = self.send_some(client, run, start).await;
        end.and(run.confirm_all().await)
    }

    async fn send_some(&self, client: &Client, run: &mut PublishRun, start: Instant) -> Result<(), Failure> {
        let mut feed = StdinFeed::new(run.tally.clone());
        while let Some(Fed { message, line }) = feed.next(&self.template).await? {
            if let Some(rate) = self.rate {
                let due = Duration::from_secs_f64(run.tally.sent_count() as f64 / rate as f64);
                tokio::time::sleep_until(start + due).await;
            }
            // A line that may be too large is sent alone, so that no later line is stored if it is refused.
            let alone = line.is_some() && self.is_near_the_limit(&message);
            if alone {
                run.confirm_all().await?;
            }
            let receipt = client.publish_nowait(&self.topic, message).await?;
            run.tally.sent();
            run.receipts.push_back((line, receipt));
            if alone {
                run.confirm_all().await?;
            } else if run.receipts.len() >= INFLIGHT_MAX || self.rate.is_some() {
                run.confirm_first().await?;
            }
        }
        Ok(())
    }

    fn is_near_the_limit(&self, message: &NewMessage) -> bool {
        let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len() + 1).sum();
        let named = message.key.as_ref().map_or(0, String::len) + headers;
        message.payload.as_str().len() + named * ESCAPED_BYTES_MAX + FRAME_REST_BYTES > self.frame_bytes_max
    }
}

/// The publishes that wait for their confirmation, and what has been confirmed.
struct PublishRun {
    out: Printer,
    progress: Progress,
    json: bool,
    tally: Rc<Tally>,
    /// The receipts, each with the number of its line if it came from stdin.
    receipts: VecDeque<(Option<u64>, Receipt)>,
    last: Option<Published>,
}

impl PublishRun {
    /// Waits for all confirmations and returns the first error.
    async fn confirm_all(&mut self) -> Result<(), Failure> {
        let mut end = Ok(());
        while !self.receipts.is_empty() {
            end = end.and(self.confirm_first().await);
        }
        end
    }

    async fn confirm_first(&mut self) -> Result<(), Failure> {
        let Some((line, receipt)) = self.receipts.pop_front() else { return Ok(()) };
        let published = match receipt.await {
            Ok(published) => published,
            // Whether the server stored the event is unknown, and the line is not to blame.
            Err(error) if error.is_unreachable() || matches!(error, ClientError::Closed) => {
                return Err(error.into());
            }
            Err(ClientError::Refused(error)) if error.code == ErrorCode::Unauthorized => {
                self.tally.refused();
                return Err(ClientError::Refused(error).into());
            }
            // Not retried: events sent after it may be stored already, and would then come before it.
            Err(ClientError::Refused(error)) if error.code == ErrorCode::RateLimited => {
                self.tally.refused();
                return Err(Failure::from(ClientError::Refused(error)).adding(RATE_ADVICE));
            }
            Err(error) => {
                self.tally.refused();
                return Err(line.map_or_else(|| error.clone().into(), |line| at_line(line, &error)));
            }
        };
        self.tally.confirmed();
        self.progress.one_more();
        if self.json {
            let mut line = String::new();
            Published { rid: None, ..published.clone() }.write(&mut line);
            self.out.line(&line).await?;
            // While lines come slowly, the reader sees each confirmation at once.
            if self.receipts.is_empty() {
                self.out.flush().await?;
            }
        }
        self.last = Some(published);
        Ok(())
    }
}

fn one_line(published: &Published) -> String {
    let Published { topic, id, durability, .. } = published;
    match published.place {
        PublishedPlace::At { partition, offset } => {
            format!(
                "published to {topic}, partition {partition}, offset {offset}, id {id} ({})",
                durability.as_str()
            )
        }
        PublishedPlace::Due(due) => {
            format!("published to {topic}, due {due}, id {id} ({})", durability.as_str())
        }
    }
}
