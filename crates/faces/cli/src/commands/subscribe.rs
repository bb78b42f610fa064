//! `millrace sub`: prints what a group receives, and acknowledges what was printed.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use millrace_client::{
    AckMode, Client, Delivery, Filter, Offset, StartFrom, SubscribeOptions, Subscription, Timestamp,
};

use crate::commands::connect::with_client;
use crate::commands::{json_flag, name_and_value, text};
use crate::failure::Failure;
use crate::output::Printer;
use crate::settings::{Scope, args};

/// The most deliveries that are printed before they are acknowledged together.
const TURN_MAX: usize = 256;

pub(super) fn command() -> Command {
    Command::new("sub")
        .about("Receive events as a member of a group and print their payloads")
        .arg(Arg::new("topic").value_name("TOPIC").required(true).help("The topic's name"))
        .arg(Arg::new("group").long("group").value_name("G").required(true).help("The consumer group"))
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("earliest|latest|offset:N|timestamp:MS")
                .help("Where a group without a commit begins [default: latest]"),
        )
        .arg(
            Arg::new("reset")
                .long("reset")
                .action(ArgAction::SetTrue)
                .requires("from")
                .help("Seek although the group has a commit"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .help("End after N events"),
        )
        .arg(
            Arg::new("ack-mode")
                .long("ack-mode")
                .value_name("cumulative|individual")
                .help("The events that an ack completes [default: as the topic or the server has it]"),
        )
        .arg(
            Arg::new("sticky")
                .long("sticky")
                .action(ArgAction::SetTrue)
                .help("Events of one key go to one member of the group, one at a time"),
        )
        .arg(
            Arg::new("no-ack")
                .long("no-ack")
                .action(ArgAction::SetTrue)
                .help(
                    "Print only: the events are given back at the end and will be delivered again. An event \
                     that times out meanwhile has had an attempt all the same",
                ),
        )
        .arg(Arg::new("nack").long("nack").value_name("REASON").conflicts_with("no-ack").help(
            "Refuse what was printed instead of acknowledging it: an attempt, after maxAttempts (5 by default) a dead letter",
        ))
        .arg(
            Arg::new("max-inflight")
                .long("max-inflight")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help("Unacknowledged events at a time [default: 32]"),
        )
        .arg(Arg::new("filter-key").long("filter-key").value_name("K").help("Only events with this key"))
        .arg(
            Arg::new("filter-header")
                .long("filter-header")
                .value_name("N=V")
                .help("Only events with this header"),
        )
        .arg(json_flag().help("Print whole frames"))
        .args(args(&[Scope::Client]))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let reader = SubscriptionReader {
        options: options(matches)?,
        left: matches.get_one::<u64>("count").copied(),
        answer: match text(matches, "nack") {
            Some(reason) => AckPolicy::Nack(reason.to_owned()),
            None if matches.get_flag("no-ack") => AckPolicy::Nothing,
            None => AckPolicy::Ack,
        },
        json: matches.get_flag("json"),
    };
    with_client(matches, |client| async move { reader.run(&client).await })
}

fn options(matches: &ArgMatches) -> Result<SubscribeOptions, Failure> {
    let (topic, group) =
        (text(matches, "topic").unwrap_or_default(), text(matches, "group").unwrap_or_default());
    let mut options = SubscribeOptions::new(topic, group)?;
    options.from = text(matches, "from").map(start_from).transpose()?;
    options.reset = matches.get_flag("reset");
    if let Some(mode) = text(matches, "ack-mode") {
        let parsed = AckMode::parse(mode).ok_or_else(|| {
            Failure::Usage(format!("--ack-mode is {mode:?}: it must be cumulative or individual"))
        })?;
        options.ack_mode = Some(parsed);
    }
    options.sticky = matches.get_flag("sticky");
    if let Some(max_inflight) = matches.get_one::<u32>("max-inflight") {
        options.max_inflight = *max_inflight;
    }
    options.filter = Filter {
        key: text(matches, "filter-key").map(Into::into),
        header: text(matches, "filter-header")
            .map(|pair| name_and_value("--filter-header", pair))
            .transpose()?,
    };
    Ok(options)
}

pub(super) fn start_from(text: &str) -> Result<StartFrom, Failure> {
    let from = match text.split_once(':') {
        None if text == "earliest" => Some(StartFrom::Earliest),
        None if text == "latest" => Some(StartFrom::Latest),
        Some(("offset", number)) => number.parse().ok().map(|offset| StartFrom::Offset(Offset(offset))),
        Some(("timestamp", number)) => number.parse().ok().map(|ms| StartFrom::Timestamp(Timestamp(ms))),
        _ => None,
    };
    from.ok_or_else(|| {
        Failure::Usage(format!("--from is {text:?}: it must be earliest, latest, offset:N or timestamp:MS"))
    })
}

struct SubscriptionReader {
    options: SubscribeOptions,
    left: Option<u64>,
    answer: AckPolicy,
    json: bool,
}

/// How printed events are answered.
enum AckPolicy {
    Ack,
    /// Refuse, with this reason.
    Nack(String),
    Nothing,
}

impl SubscriptionReader {
    async fn run(mut self, client: &Client) -> Result<(), Failure> {
        // Request exactly this many: a delivery that is never printed would still count as an attempt.
        if let Some(count) = self.left {
            client.flow(count).await?;
        }
        let mut subscription = client.subscribe(self.options.clone()).await?;
        let mut out = Printer::new();
        while self.left != Some(0) {
            let turn = self.print_turn(&mut subscription, &mut out).await?;
            out.flush().await?;
            self.answer_all(&turn).await?;
        }
        Ok(subscription.unsubscribe().await?)
    }

    /// Waits for one delivery, then also takes those that are available at once.
    async fn print_turn(
        &mut self,
        subscription: &mut Subscription,
        out: &mut Printer,
    ) -> Result<Vec<Delivery>, Failure> {
        let mut turn = Vec::new();
        let mut next = Some(subscription.next().await?);
        while let Some(delivery) = next {
            out.line(&self.shown(&delivery)).await?;
            turn.push(delivery);
            self.left = self.left.map(|left| left - 1);
            next = if self.left == Some(0) || turn.len() == TURN_MAX {
                None
            } else {
                subscription.try_next()?
            };
        }
        Ok(turn)
    }

    fn shown(&self, delivery: &Delivery) -> String {
        if !self.json {
            return delivery.payload().as_str().into();
        }
        let mut line = String::new();
        delivery.message.write(&mut line);
        line
    }

    /// Answers printed events. The last answer of a run with `--count` is confirmed, so that the next run begins after
    /// it.
    async fn answer_all(&self, turn: &[Delivery]) -> Result<(), Failure> {
        for (at, delivery) in turn.iter().enumerate() {
            let is_last = self.left == Some(0) && at + 1 == turn.len();
            match &self.answer {
                AckPolicy::Ack if is_last => delivery.ack_confirmed().await?,
                AckPolicy::Ack => delivery.ack().await?,
                AckPolicy::Nack(reason) if is_last => delivery.nack_confirmed(Some(reason), None).await?,
                AckPolicy::Nack(reason) => delivery.nack(Some(reason), None).await?,
                AckPolicy::Nothing => {}
            }
        }
        Ok(())
    }
}
