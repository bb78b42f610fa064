//! Pages of a topic: read from the store, written as one document or as lines, bounded together.

use std::fmt::Write;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millrace_bus::BusError;
use millrace_model::{Offset, Partition, Space, Timestamp, TopicKey, TopicRow, keys};
use millrace_store::{KeyRange, Page, ReadLimit, Store, StoreError};
use millrace_wire::http::write_events_page;
use millrace_wire::{ErrorCode, write_envelope};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::{App, BODY_UNIT};
use crate::http::json;
use crate::params::Params;
use crate::refusal::Refusal;
use crate::to_wire;

const LIMIT_DEFAULT: u64 = 100;
const INTEGER_MAX: u64 = (1 << 53) - 1;
const NDJSON: &str = "application/x-ndjson";
/// Where to go on, for readers of NDJSON.
const NEXT: HeaderName = HeaderName::from_static("millrace-next");
/// Offsets of this page whose events are damaged.
const DAMAGED: HeaderName = HeaderName::from_static("millrace-damaged");
/// What an envelope adds to the content of its event, about: a page may hold many small ones.
const ENVELOPE_BYTES: usize = 256;

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

/// A page, the offset at which to go on, and its share of what all pages together may take.
pub(crate) struct Fetched {
    pub(crate) page: Page,
    pub(crate) next: Offset,
    share: Option<OwnedSemaphorePermit>,
}

/// A page of a topic that exists. Waits for its share.
pub(crate) async fn fetch(app: &App, topic: TopicKey, query: PageQuery) -> Result<Fetched, Refusal> {
    let share = share(app, query.limit).await;
    let stream = topic.stream(query.partition);
    let read = app.read(move |store| {
        if let Err(error) = check_topic(store, &topic, query.partition)? {
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
    Ok(Fetched { page, next, share })
}

/// For the most the page can become, as events and as an answer. `None` only if the semaphore were closed.
async fn share(app: &App, limit: ReadLimit) -> Option<OwnedSemaphorePermit> {
    // One event is always let in, however small the bound.
    let content = limit.bytes_max.max(app.settings.frame_bytes_max);
    let bytes = limit.events_max.saturating_mul(ENVELOPE_BYTES).saturating_add(content).saturating_mul(2);
    // A page above the bound for all of them is made alone.
    let units = bytes.min(app.settings.pages_bytes_max).div_ceil(BODY_UNIT);
    app.pages.clone().acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()
}

/// Text that keeps its share until the last byte is written or the connection is gone.
struct HeldText {
    text: String,
    _share: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl HeldText {
    fn body(text: String, mut share: Option<OwnedSemaphorePermit>) -> Body {
        if let Some(share) = &mut share {
            let unused = share.num_permits().saturating_sub(text.capacity().div_ceil(BODY_UNIT));
            drop(share.split(unused));
        }
        Body::from(Bytes::from_owner(HeldText { text, _share: share }))
    }
}

/// Asked of the store and not of the engine, so that readers of history never wait for publishers.
fn check_topic(
    store: &dyn Store,
    topic: &TopicKey,
    partition: Partition,
) -> Result<Result<(), BusError>, StoreError> {
    let key = keys::topic(topic);
    let rows = store.scan(Space::Topics, &KeyRange { to: Some(format!("{key}\0")), from: key }, 1)?;
    let Some(row) = rows.first() else { return Ok(Err(BusError::UnknownTopic(topic.clone()))) };
    let topic_row =
        TopicRow::decode(&row.key, &row.value).map_err(|error| StoreError::Unreadable(error.to_string()))?;
    let partitions = topic_row.config.partitions.max(1);
    if partition.0 >= partitions {
        return Ok(Err(BusError::UnknownPartition { topic: topic.clone(), partition, partitions }));
    }
    Ok(Ok(()))
}

impl Fetched {
    pub(crate) fn answer(self, topic: &TopicKey, partition: Partition, lines: bool) -> Response {
        let Fetched { page, next, share } = self;
        let bytes: usize = page.events.iter().map(|event| event.body.bytes() + ENVELOPE_BYTES).sum();
        let mut out = String::with_capacity(bytes + ENVELOPE_BYTES);
        let damaged = damaged(&page);
        let mut response = if lines {
            for event in &page.events {
                write_envelope(&mut out, event, 1);
                out.push('\n');
            }
            drop(page);
            let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON))];
            (kind, HeldText::body(out, share)).into_response()
        } else {
            write_events_page(&mut out, topic.topic(), partition, &page.events, next);
            drop(page);
            json(StatusCode::OK, HeldText::body(out, share))
        };
        response.headers_mut().insert(NEXT, HeaderValue::from(next.0));
        if let Some(damaged) = damaged {
            response.headers_mut().insert(DAMAGED, damaged);
        }
        response
    }
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
