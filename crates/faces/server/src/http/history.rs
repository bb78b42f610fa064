//! `GET /stats/history`: figures over time, from the events of `system.metrics`. A chart is filled when a page opens,
//! not empty until the browser has watched for a while.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_model::{METRICS_TOPIC, Namespace, Partition, Timestamp, TopicKey, TopicName};
use millrace_store::{ReadLimit, Store, StoreError};
use millrace_wire::ErrorCode;
use millrace_wire::http::{MetricsDoc, SeriesDoc, StatsHistory};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::http::document;
use crate::http::server_stats::namespace_of;
use crate::params::Params;
use crate::refusal::Refusal;

/// Records that one answer looks at: a day of them, ten seconds apart.
const RECORDS_MAX: usize = 10_000;
const SERIES_MAX: usize = 20;
const POINTS_MAX: u64 = 1000;
const STEP_MS_DEFAULT: u64 = 60_000;
const SPAN_MS_DEFAULT: u64 = 3_600_000;
const INTEGER_MAX: u64 = (1 << 53) - 1;
const PAGE: ReadLimit = ReadLimit { events_max: 500, bytes_max: 2 << 20 };

pub(crate) async fn history(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let now = app.broker.clock().now().wall.0;
    let query = HistoryQuery::of(&params, now)?;
    let home = namespace_of(&caller, &params)?;
    if let Some(one) = query.series.iter().find(|one| one.is_of_topic())
        && home != Namespace::default()
    {
        let detail = format!(
            "{}: the history of single topics and groups is recorded for namespace default only, and this request is \
             about {home}",
            one.name
        );
        return Err(Refusal::new(ErrorCode::BadFrame, detail));
    }
    let doc = app.read(move |store| read(store, &query)).await?;
    Ok(document(StatusCode::OK, &doc))
}

struct HistoryQuery {
    from: u64,
    to: u64,
    step: u64,
    series: Vec<Series>,
}

impl HistoryQuery {
    fn of(params: &Params, now: u64) -> Result<HistoryQuery, Refusal> {
        let to = params.number("to", 0..=INTEGER_MAX)?.unwrap_or(now);
        let from = params.number("from", 0..=INTEGER_MAX)?.unwrap_or(to.saturating_sub(SPAN_MS_DEFAULT));
        let step = params.number("step", 1..=INTEGER_MAX)?.unwrap_or(STEP_MS_DEFAULT);
        let bad = |detail: String| Refusal::new(ErrorCode::BadFrame, detail);
        if from >= to {
            return Err(bad(format!("from is {from} and to is {to}: from must be earlier")));
        }
        let points = (to - from).div_ceil(step);
        if points > POINTS_MAX {
            return Err(bad(format!(
                "from, to and step ask for {points} points: at most {POINTS_MAX} are given, make step larger"
            )));
        }
        let names: Vec<&str> =
            params.text("series").unwrap_or("published,delivered,acks,lag").split(',').collect();
        if names.len() > SERIES_MAX {
            return Err(bad(format!("{} series are too many: at most {SERIES_MAX} are given", names.len())));
        }
        let series = names.into_iter().map(Series::parse).collect::<Result<_, _>>()?;
        Ok(HistoryQuery { from, to, step, series })
    }
}

/// A figure of a record.
struct Series {
    name: String,
    of: FigureOf,
}

enum FigureOf {
    Counter(fn(&MetricsDoc) -> u64),
    Gauge(fn(&MetricsDoc) -> u64),
    Published(String),
    Delivered(String),
    Lag(String, String),
    Inflight(String, String),
}

const PLAIN: &str = "published, delivered, acks, nacks, redeliveries, timeouts, deadLetters, duplicates, commits, \
    commitEvents, lag, inflight, connections, subscriptions, backlogBytes, requestsWaiting, outboundBytes, published:TOPIC, \
    delivered:TOPIC, lag:TOPIC/GROUP and inflight:TOPIC/GROUP";

impl Series {
    fn parse(name: &str) -> Result<Series, Refusal> {
        use FigureOf::{Counter, Delivered, Gauge, Inflight, Lag, Published};
        let of = match name {
            "published" => Counter(|doc| doc.stats.published),
            "delivered" => Counter(|doc| doc.stats.delivered),
            "acks" => Counter(|doc| doc.stats.acks),
            "nacks" => Counter(|doc| doc.stats.nacks),
            "redeliveries" => Counter(|doc| doc.stats.redeliveries),
            "timeouts" => Counter(|doc| doc.stats.timeouts),
            "deadLetters" => Counter(|doc| doc.stats.dead_letters),
            "duplicates" => Counter(|doc| doc.stats.duplicates),
            "commits" => Counter(|doc| doc.commits),
            "commitEvents" => Counter(|doc| doc.commit_events),
            "lag" => Gauge(|doc| doc.stats.lag),
            "inflight" => Gauge(|doc| doc.stats.inflight),
            "connections" => Gauge(|doc| doc.stats.connections),
            "subscriptions" => Gauge(|doc| doc.stats.subscriptions),
            "backlogBytes" => Gauge(|doc| doc.backlog_bytes),
            "requestsWaiting" => Gauge(|doc| doc.requests_waiting),
            "outboundBytes" => Gauge(|doc| doc.outbound_bytes),
            _ => {
                let topic = |text: &str| TopicName::new(text).is_ok().then(|| text.to_owned());
                let of_group = |text: &str| {
                    let (of, group) = text.rsplit_once('/')?;
                    Some((topic(of)?, group.to_owned()))
                };
                let found = match name.split_once(':') {
                    Some(("published", of)) => topic(of).map(Published),
                    Some(("delivered", of)) => topic(of).map(Delivered),
                    Some(("lag", of)) => of_group(of).map(|(topic, group)| Lag(topic, group)),
                    Some(("inflight", of)) => of_group(of).map(|(topic, group)| Inflight(topic, group)),
                    _ => None,
                };
                found.ok_or_else(|| {
                    let detail = format!("there is no series {name:.300?}: there are {PLAIN}");
                    Refusal::new(ErrorCode::BadFrame, detail)
                })?
            }
        };
        Ok(Series { name: name.to_owned(), of })
    }

    fn is_of_topic(&self) -> bool {
        !matches!(self.of, FigureOf::Counter(_) | FigureOf::Gauge(_))
    }

    fn is_counter(&self) -> bool {
        matches!(self.of, FigureOf::Counter(_) | FigureOf::Published(_) | FigureOf::Delivered(_))
    }

    /// `None` if the record names no such topic or group.
    fn value(&self, doc: &MetricsDoc) -> Option<u64> {
        let group = |topic: &String, group: &String| doc.by_group.get(topic)?.get(group);
        match &self.of {
            FigureOf::Counter(of) | FigureOf::Gauge(of) => Some(of(doc)),
            FigureOf::Published(topic) => Some(doc.stats.by_topic.get(topic)?.published),
            FigureOf::Delivered(topic) => Some(doc.stats.by_topic.get(topic)?.delivered),
            FigureOf::Lag(topic, name) => Some(group(topic, name)?.lag),
            FigureOf::Inflight(topic, name) => Some(group(topic, name)?.inflight),
        }
    }
}

/// A record before the present one: counters are given as they grew since then.
struct Before {
    uptime_ms: u64,
    values: Vec<Option<u64>>,
}

fn read(store: &dyn Store, query: &HistoryQuery) -> Result<StatsHistory, StoreError> {
    let HistoryQuery { from, to, step, series } = query;
    let points = (to - from).div_ceil(*step) as usize;
    let mut sums: Vec<BTreeMap<usize, u64>> = series.iter().map(|_| BTreeMap::new()).collect();
    let mut complete = true;
    let mut each = |ts: u64, doc: &MetricsDoc, before: Option<&Before>| {
        let point = (ts.saturating_sub(*from) / step) as usize;
        for (at, one) in series.iter().enumerate() {
            let Some(value) = one.value(doc) else { continue };
            let Some(sums) = sums.get_mut(at) else { continue };
            if one.is_counter() {
                let same_life = before.filter(|before| before.uptime_ms <= doc.stats.uptime_ms);
                // The first record of all has nothing to be compared with.
                let Some(before) = before else { continue };
                let base = same_life.and(before.values.get(at).copied().flatten()).unwrap_or(0);
                *sums.entry(point).or_default() += value.saturating_sub(base);
            } else {
                let most = sums.entry(point).or_default();
                *most = value.max(*most);
            }
        }
    };
    let mut looked_at = 0;
    let topic = TopicKey::parse(&format!("default/{METRICS_TOPIC}"));
    if let Ok(stream) = topic.map(|topic| topic.stream(Partition(0))) {
        let mut next = store.seek(&stream, Timestamp(*from))?;
        // A record more in front, which the first counter is compared with.
        next = next.before().max(millrace_model::Offset::FIRST);
        let mut before: Option<Before> = None;
        'pages: loop {
            let page = store.read(&stream, next, PAGE)?;
            if page.through < next {
                break;
            }
            next = page.through.next();
            for event in &page.events {
                if event.ts.0 >= *to {
                    break 'pages;
                }
                looked_at += 1;
                if looked_at > RECORDS_MAX {
                    complete = false;
                    break 'pages;
                }
                // A client may publish to the topic, too; what is no record is passed over.
                let Ok(doc) = serde_json::from_str::<MetricsDoc>(event.body.payload.as_str()) else {
                    continue;
                };
                if event.ts.0 >= *from {
                    each(event.ts.0, &doc, before.as_ref());
                }
                let values = series.iter().map(|one| one.value(&doc)).collect();
                before = Some(Before { uptime_ms: doc.stats.uptime_ms, values });
            }
        }
    }
    let series = series.iter().zip(&sums).map(|(one, sums)| SeriesDoc {
        name: one.name.clone(),
        kind: if one.is_counter() { "counter" } else { "gauge" }.to_owned(),
        points: (0..points)
            .map(|point| (from + point as u64 * step, sums.get(&point).map(|value| *value as f64)))
            .collect(),
    });
    Ok(StatsHistory { step: *step, from: *from, to: *to, series: series.collect(), complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_a_closed_list() {
        for name in ["published", "lag", "published:orders", "lag:orders/billing", "inflight:a.b/c"] {
            assert!(Series::parse(name).is_ok(), "{name}");
        }
        for name in ["", "nonsense", "published:", "lag:orders", "lag:a b/c", "published:a/b"] {
            assert!(Series::parse(name).is_err(), "{name}");
        }
    }
}
