//! The figures that a list of topics has beside their settings: one request for the whole table, however many topics there are.

use std::collections::BTreeMap;

use millrace_bus::{Reply, Request, Stats};
use millrace_model::{DLQ_SUFFIX, Offset, Requester, TopicKey};
use millrace_wire::ErrorCode;
use millrace_wire::http::{TopicFigures, TopicGroupFigures};

use crate::app::SharedApp;
use crate::refusal::Refusal;

/// How a list of topics is sorted; the largest first, except by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopicSort {
    Name,
    Events,
    Bytes,
    LastTs,
    Lag,
    DeadLetters,
}

impl TopicSort {
    pub(crate) fn parse(text: Option<&str>) -> Result<TopicSort, Refusal> {
        Ok(match text {
            None | Some("name") => TopicSort::Name,
            Some("events") => TopicSort::Events,
            Some("bytes") => TopicSort::Bytes,
            Some("lastTs") => TopicSort::LastTs,
            Some("lag") => TopicSort::Lag,
            Some("deadLetters") => TopicSort::DeadLetters,
            Some(other) => {
                let detail = format!(
                    "sort is {other:.40?}: it must be name, events, bytes, lastTs, lag or deadLetters"
                );
                return Err(Refusal::new(ErrorCode::BadFrame, detail));
            }
        })
    }

    pub(crate) fn weight(self, figures: &TopicFigures) -> u64 {
        match self {
            TopicSort::Name => 0,
            TopicSort::Events => figures.events,
            TopicSort::Bytes => figures.bytes,
            TopicSort::LastTs => figures.last_ts,
            TopicSort::Lag => figures.lag,
            TopicSort::DeadLetters => figures.dead_letters,
        }
    }
}

#[derive(Default)]
struct LogFigures {
    events: u64,
    bytes: u64,
    last_ts: u64,
}

/// The figures of all topics: one question to the engine and one to the store.
pub(crate) struct AllFigures {
    stats: Box<Stats>,
    logs: BTreeMap<TopicKey, LogFigures>,
}

impl AllFigures {
    pub(crate) async fn read(app: &SharedApp) -> Result<AllFigures, Refusal> {
        let stats = match app.request(Requester::Trusted, Request::Stats).await? {
            Reply::Stats(stats) => stats,
            other => return Err(Refusal::unexpected(&other)),
        };
        let logs = app.read(|store| {
            let mut logs: BTreeMap<TopicKey, LogFigures> = BTreeMap::new();
            for bounds in store.streams()? {
                let log = logs.entry(bounds.stream.topic.clone()).or_default();
                log.events += bounds.next.0.saturating_sub(bounds.start.max(Offset::FIRST).0);
                log.bytes += bounds.bytes;
                log.last_ts = log.last_ts.max(bounds.last_ts.0);
            }
            Ok(logs)
        });
        Ok(AllFigures { stats, logs: logs.await? })
    }

    pub(crate) fn of(&self, topic: &TopicKey) -> TopicFigures {
        let log = self.logs.get(topic);
        let counters = self.stats.by_topic.get(topic);
        let letters = topic.dead_letters().and_then(|dlq| self.logs.get(&dlq));
        let is_letters = topic.topic().ends_with(DLQ_SUFFIX);
        // Groups are listed in the order of their topics.
        let groups = &self.stats.by_group;
        let first = groups.partition_point(|one| one.topic < *topic);
        let of_topic = groups.iter().skip(first).take_while(|one| one.topic == *topic);
        let standing: BTreeMap<String, TopicGroupFigures> = of_topic
            .map(|one| {
                let figures = TopicGroupFigures { lag: one.lag, inflight: one.inflight, paused: one.paused };
                (one.group.to_string(), figures)
            })
            .collect();
        TopicFigures {
            events: log.map_or(0, |log| log.events),
            bytes: log.map_or(0, |log| log.bytes),
            last_ts: log.map_or(0, |log| log.last_ts),
            published: counters.map_or(0, |counters| counters.published),
            delivered: counters.map_or(0, |counters| counters.delivered),
            lag: standing.values().map(|figures| figures.lag).sum(),
            dead_letters: if is_letters { 0 } else { letters.map_or(0, |letters| letters.events) },
            standing,
        }
    }
}
