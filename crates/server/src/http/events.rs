//! Events of a topic: publish some, read a page.

use std::fmt::Write;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::{BusError, By, Publish, PublishBatch, Reply, Request};
use millrace_model::{
    Action, Offset, Partition, Principal, Space, Timestamp, TopicConfig, TopicKey, TopicRow, keys,
};
use millrace_store::{KeyRange, Page, ReadLimit, Store, StoreError};
use millrace_wire::http::{PublishBody, write_events_page};
use millrace_wire::{ErrorCode, FrameError, write_envelope};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::body::read_text;
use crate::http::json;
use crate::params::{AtTopic, Params};
use crate::refusal::Refusal;
use crate::{from_wire, to_wire};

const LIMIT_DEFAULT: u64 = 100;
const INTEGER_MAX: u64 = (1 << 53) - 1;
const NDJSON: &str = "application/x-ndjson";
/// Where to go on, for readers of NDJSON.
const NEXT: HeaderName = HeaderName::from_static("millrace-next");
/// Offsets of this page whose events are damaged.
const DAMAGED: HeaderName = HeaderName::from_static("millrace-damaged");

pub(crate) async fn publish(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read_text(&app, body, app.settings.batch_body_bytes_max).await?;
    let is_array = body.text.trim_start().starts_with('[');
    if !is_array && body.text.len() > app.settings.frame_bytes_max {
        return Err(FrameError::too_large("event", app.settings.frame_bytes_max).into());
    }
    let topic = at.topic;
    let request = match PublishBody::parse(&body.text)? {
        PublishBody::One { event, deliver_at } => {
            Request::Publish(Publish { topic, event, deliver_at: deliver_at.map(from_wire::deliver_at) })
        }
        PublishBody::Many(events) => {
            // The gate has taken one already.
            caller.charge(events.len().saturating_sub(1) as u64)?;
            Request::PublishBatch(PublishBatch { topic, events })
        }
    };
    match app.ask(caller.by(), request).await? {
        reply @ (Reply::Published { .. } | Reply::PublishedBatch { .. }) => {
            let mut out = String::new();
            to_wire::answer(&mut out, &reply, None);
            Ok(json(StatusCode::OK, out))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn read(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let query = PageQuery::of(&app, &at.params)?;
    let (page, next) = page(&app, caller.by(), at.topic.clone(), query).await?;
    Ok(answer(&at.topic, query.partition, &page, next, wants_lines(&headers)))
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PageQuery {
    pub(crate) partition: Partition,
    pub(crate) start: Start,
    pub(crate) limit: ReadLimit,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Offset(Offset),
    Timestamp(Timestamp),
}

impl PageQuery {
    pub(crate) fn of(app: &App, params: &Params) -> Result<PageQuery, Refusal> {
        let from = params.number("from", 0..=INTEGER_MAX)?;
        let ts = params.number("ts", 0..=INTEGER_MAX)?;
        let start = match (from, ts) {
            (Some(_), Some(_)) => {
                let detail = "from and ts are both given: give one of them";
                return Err(Refusal::new(ErrorCode::BadFrame, detail));
            }
            (_, Some(ts)) => Start::Timestamp(Timestamp(ts)),
            (from, None) => Start::Offset(Offset(from.unwrap_or(0).max(1))),
        };
        let limit = params.number("limit", 1..=app.settings.page_events_max as u64)?;
        Ok(PageQuery {
            partition: Partition(params.number("partition", 0..=u64::from(u32::MAX))?.unwrap_or(0) as u32),
            start,
            limit: ReadLimit {
                events_max: limit.unwrap_or(LIMIT_DEFAULT) as usize,
                bytes_max: app.settings.page_bytes_max,
            },
        })
    }
}

/// A page of a topic that exists, and the offset at which to go on.
pub(crate) async fn page(
    app: &App,
    by: By,
    topic: TopicKey,
    query: PageQuery,
) -> Result<(Page, Offset), Refusal> {
    let stream = topic.stream(query.partition);
    let read = app.read(move |store| {
        if let Err(error) = check_topic(store, by.as_deref(), &topic, query.partition)? {
            return Ok(Err(error));
        }
        let from = match query.start {
            Start::Offset(offset) => offset,
            Start::Timestamp(ts) => store.seek(&stream, ts)?,
        };
        let page = store.read(&stream, from, query.limit)?;
        if !page.damaged.is_empty() {
            tracing::error!(%stream, offsets = ?page.damaged, "damaged events were set aside and cannot be read");
        }
        let next = page.through.next().max(from);
        Ok(Ok((page, next)))
    });
    let (page, next) = read.await?.map_err(|error| Refusal::from(to_wire::problem(&error)))?;
    app.runtime.count_damaged(page.damaged.len());
    Ok((page, next))
}

/// Asked of the store and not of the engine, so that readers of history never wait for publishers.
fn check_topic(
    store: &dyn Store,
    by: Option<&Principal>,
    topic: &TopicKey,
    partition: Partition,
) -> Result<Result<(), BusError>, StoreError> {
    let Some(config) = topic_config(store, topic)? else {
        return Ok(Err(BusError::UnknownTopic(topic.clone())));
    };
    if let Some(who) = by {
        // The engine's rule: dead letters without a list of their own have their topic's.
        let action = Action::Subscribe;
        let of = match (config.access(action), topic.dead_letters_of()) {
            (None, Some(of)) => topic_config(store, &of)?,
            _ => None,
        };
        let list = config.access(action).or_else(|| of.as_ref()?.access(action));
        if list.is_some_and(|list| !list.permits(who)) {
            let (topic, agent) = (topic.clone(), who.agent.clone());
            return Ok(Err(BusError::Forbidden { topic, agent, action }));
        }
    }
    let partitions = config.partitions.max(1);
    if partition.0 >= partitions {
        return Ok(Err(BusError::UnknownPartition { topic: topic.clone(), partition, partitions }));
    }
    Ok(Ok(()))
}

fn topic_config(store: &dyn Store, topic: &TopicKey) -> Result<Option<TopicConfig>, StoreError> {
    let key = keys::topic(topic);
    let rows = store.scan(Space::Topics, &KeyRange { to: Some(format!("{key}\0")), from: key }, 1)?;
    let Some(row) = rows.first() else { return Ok(None) };
    let row = TopicRow::decode(&row.key, &row.value);
    row.map(|row| Some(row.config)).map_err(|error| StoreError::Unreadable(error.to_string()))
}

pub(crate) fn answer(
    topic: &TopicKey,
    partition: Partition,
    page: &Page,
    next: Offset,
    lines: bool,
) -> Response {
    let bytes: usize = page.events.iter().map(|event| event.body.bytes() + 256).sum();
    let mut out = String::with_capacity(bytes + 256);
    let mut response = if lines {
        for event in &page.events {
            write_envelope(&mut out, event, 1);
            out.push('\n');
        }
        ([(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON))], out).into_response()
    } else {
        write_events_page(&mut out, topic.topic(), partition, &page.events, next);
        json(StatusCode::OK, out)
    };
    response.headers_mut().insert(NEXT, HeaderValue::from(next.0));
    if let Some(damaged) = damaged(page) {
        response.headers_mut().insert(DAMAGED, damaged);
    }
    response
}

fn damaged(page: &Page) -> Option<HeaderValue> {
    let mut list = String::new();
    for offset in &page.damaged {
        let comma = if list.is_empty() { "" } else { "," };
        let _ = write!(list, "{comma}{offset}");
    }
    (!list.is_empty()).then(|| HeaderValue::from_str(&list).ok())?
}

/// By Accept: one envelope per line instead of one document.
pub(crate) fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds =
        accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or("").trim());
    kinds.any(|kind| {
        matches!(kind, NDJSON | "application/ndjson" | "application/jsonl" | "application/x-jsonlines")
    })
}
