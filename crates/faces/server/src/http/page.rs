//! Pages of a topic's events: read from the store, written as one document or as lines, with a bound on the memory of
//! all pages together.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millrace_bus::BusError;
use millrace_model::{Event, Offset, Partition, Requester, Stream, Timestamp, TopicKey};
use millrace_store::{Page, ReadLimit, Store, StoreError};
use millrace_wire::http::{mark_withheld, write_events_page};
use millrace_wire::{CLOUD_EVENT, CLOUD_EVENTS, ErrorCode, Shown, write_cloud_event, write_envelope};

use crate::access::Caller;
use crate::edge::Edge;
use crate::fairness::RoomShare;
use crate::http::topic_access::check_topic;
use crate::http::withheld;
use crate::observe::{ContentRead, HttpRequester};
use crate::params::Params;
use crate::refusal::{Refusal, overloaded};

/// The parameter that asks for the digest of every payload, in a page or on a WebSocket.
pub(crate) const PAYLOAD_SHA256: &str = "payload_sha256";
const LIMIT_DEFAULT: u64 = 100;
const INTEGER_MAX: u64 = (1 << 53) - 1;
const NDJSON: &str = "application/x-ndjson";
/// The offset to go on at; readers of NDJSON need it as a header.
const NEXT: HeaderName = HeaderName::from_static("millrace-next");
/// Offsets of this page whose events are damaged.
const DAMAGED: HeaderName = HeaderName::from_static("millrace-damaged");
/// Reads for one page, and offsets of a read that follows one without events. So a page passes over ten million empty
/// offsets; behind a longer gap it holds fewer events than were asked for.
const GAP_READS_MAX: usize = 1000;
const GAP_OFFSETS: usize = 10_000;
/// Bytes that an envelope adds to the content of its event, roughly: a page may hold many small events.
const ENVELOPE_BYTES: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PageQuery {
    pub(crate) partition: Partition,
    pub(crate) start: PageStart,
    pub(crate) limit: ReadLimit,
    /// Whether envelopes carry the digest of their payload.
    pub(crate) payload_sha256: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PageStart {
    Offset(Offset),
    Timestamp(Timestamp),
}

impl PageQuery {
    pub(crate) fn of(edge: &Edge, params: &Params) -> Result<PageQuery, Refusal> {
        let from = params.number("from", 0..=INTEGER_MAX)?;
        let ts = params.number("ts", 0..=INTEGER_MAX)?;
        let start = match (from, ts) {
            (Some(_), Some(_)) => {
                let detail = "from and ts are both given: give one of them";
                return Err(Refusal::new(ErrorCode::BadFrame, detail));
            }
            (_, Some(ts)) => PageStart::Timestamp(Timestamp(ts)),
            (from, None) => PageStart::Offset(Offset(from.unwrap_or(0).max(1))),
        };
        let limit = params.number("limit", 1..=edge.settings.page_events_max as u64)?;
        Ok(PageQuery {
            partition: Partition(params.number("partition", 0..=u64::from(u32::MAX))?.unwrap_or(0) as u32),
            start,
            limit: ReadLimit {
                events_max: limit.unwrap_or(LIMIT_DEFAULT) as usize,
                bytes_max: edge.settings.page_bytes_max,
            },
            payload_sha256: params.flag(PAYLOAD_SHA256)?,
        })
    }
}

/// A page, the offset to go on at, and the page's share of the memory for pages.
pub(crate) struct Fetched {
    pub(crate) page: Page,
    pub(crate) next: Offset,
    share: RoomShare,
    withheld: bool,
}

/// Reads a page of a topic that exists and that `by` may read. Waits for its share of the memory.
pub(crate) async fn fetch(
    edge: &Edge,
    store: &Arc<dyn Store>,
    by: Requester,
    topic: TopicKey,
    query: PageQuery,
) -> Result<Fetched, Refusal> {
    fetch_checked(edge, store, topic, query, move |store, topic| {
        check_topic(store, &by, topic, query.partition)
    })
    .await
}

/// The same for a dead-letter topic. That topic need not exist: before the first event has failed there are no dead
/// letters.
pub(crate) async fn fetch_letters(
    edge: &Edge,
    store: &Arc<dyn Store>,
    by: Requester,
    dlq: TopicKey,
    query: PageQuery,
) -> Result<Fetched, Refusal> {
    fetch_checked(edge, store, dlq, query, move |store, dlq| {
        let checked = check_topic(store, &by, dlq, query.partition)?;
        match (checked, dlq.dead_letters_of()) {
            (Err(BusError::UnknownTopic(_)), Some(of)) => check_topic(store, &by, &of, query.partition),
            (checked, _) => Ok(checked),
        }
    })
    .await
}

async fn fetch_checked(
    edge: &Edge,
    store: &Arc<dyn Store>,
    topic: TopicKey,
    query: PageQuery,
    check: impl FnOnce(&dyn Store, &TopicKey) -> Result<Result<(), BusError>, StoreError> + Send + 'static,
) -> Result<Fetched, Refusal> {
    let share = share(edge, query.limit).await?;
    let stream = topic.stream(query.partition);
    let read = edge.read(store.clone(), move |store| {
        if let Err(error) = check(store, &topic)? {
            return Ok(Err(error));
        }
        let from = match query.start {
            PageStart::Offset(offset) => offset,
            PageStart::Timestamp(ts) => store.seek(&stream, ts)?,
        };
        let page = read_over_gaps(store, &stream, from, query.limit)?;
        if !page.damaged.is_empty() {
            tracing::error!(%stream, offsets = ?page.damaged, "damaged events were set aside and cannot be read");
        }
        let mut next = page.through.next().max(from);
        if page.events.is_empty() && page.damaged.is_empty() {
            // A reader past the end goes on at the end, or it would skip events that are published meanwhile.
            next = next.min(store.seek(&stream, Timestamp(INTEGER_MAX))?);
        }
        Ok(Ok((page, next)))
    });
    let (page, next) = read.await?.map_err(|error| Refusal::of(&error))?;
    Ok(Fetched { page, next, share, withheld: false })
}

/// Reads a page of that many events, however many empty offsets compaction left between them. The store counts offsets,
/// which bounds the cost of a read; here the number of reads is bounded.
fn read_over_gaps(
    store: &dyn Store,
    stream: &Stream,
    from: Offset,
    limit: ReadLimit,
) -> Result<Page, StoreError> {
    let mut page = store.read(stream, from, limit)?;
    let mut bytes: usize = page.events.iter().map(|event| event.body.bytes()).sum();
    let mut is_gap = page.events.is_empty();
    for _ in 0..GAP_READS_MAX {
        let left = limit.events_max.saturating_sub(page.events.len());
        let next = page.through.next().max(from);
        if left == 0 || bytes >= limit.bytes_max {
            break;
        }
        let events_max = if is_gap { left.max(GAP_OFFSETS) } else { left };
        let more = store.read(stream, next, ReadLimit { events_max, bytes_max: limit.bytes_max - bytes })?;
        if more.through < next {
            break;
        }
        is_gap = more.events.is_empty();
        let mut through = more.through;
        for event in more.events {
            let with_it = bytes.saturating_add(event.body.bytes());
            let is_full = with_it > limit.bytes_max && !page.events.is_empty();
            if is_full || page.events.len() >= limit.events_max {
                through = Offset(event.offset.0.saturating_sub(1));
                break;
            }
            bytes = with_it;
            page.events.push(event);
        }
        page.damaged.extend(more.damaged.into_iter().filter(|offset| *offset <= through));
        let is_cut = through < more.through;
        page.through = through;
        if is_cut {
            break;
        }
    }
    Ok(page)
}

/// Reserves memory for the largest size that the page can reach, as events and as a response. A page above the bound
/// for all pages together is made alone.
pub(crate) async fn share(edge: &Edge, limit: ReadLimit) -> Result<RoomShare, Refusal> {
    // A page always takes its first event, however small the bound.
    let content = limit.bytes_max.max(edge.settings.frame_bytes_max);
    let bytes = limit.events_max.saturating_mul(ENVELOPE_BYTES).saturating_add(content).saturating_mul(2);
    let http_requester = HttpRequester::current();
    let Some((caller, place)) = http_requester.and_then(|http_requester| {
        Some((http_requester.caller.get()?.clone(), http_requester.place.clone()))
    }) else {
        return Err(Refusal::new(ErrorCode::Unauthorized, "the request was not checked"));
    };
    let limit = Duration::from_millis(edge.settings.response_write_ms_max);
    match tokio::time::timeout(limit, HttpRequester::wait_for(edge.pages.reserve(caller, place, bytes))).await
    {
        Ok(share) => share,
        Err(_) => {
            let ms = limit.as_millis();
            Err(overloaded(format!("pages that were not read left no room for this one within {ms} ms")))
        }
    }
}

/// A response text that keeps its share of memory until the last byte is written or the connection is closed.
pub(crate) struct HeldText {
    text: String,
    _share: RoomShare,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl HeldText {
    pub(crate) fn body(text: String, share: RoomShare) -> Body {
        share.settle(text.capacity());
        Body::from(Bytes::from_owner(HeldText { text, _share: share }))
    }
}

impl Fetched {
    /// Takes away what is withheld from the caller, or records that the caller looked at it.
    pub(crate) fn for_caller(mut self, edge: &Edge, caller: &Caller, topic: &TopicKey) -> Fetched {
        if caller.is_withheld() {
            withheld::events(&mut self.page.events);
            self.withheld = true;
        } else {
            edge.content_read(caller, &ContentRead::page(topic, &self.page.events));
        }
        self
    }

    pub(crate) fn answer(self, topic: &TopicKey, query: &PageQuery, form: Form) -> Response {
        let PageQuery { partition, payload_sha256, .. } = *query;
        let Fetched { page, next, share, withheld } = self;
        // The attributes of a CloudEvent are header values.
        let form = if withheld && form == Form::CloudEvents { Form::Document } else { form };
        let bytes: usize = page.events.iter().map(|event| event.body.bytes() + ENVELOPE_BYTES).sum();
        let mut out = String::with_capacity(bytes + ENVELOPE_BYTES);
        let damaged = damaged(&page);
        match form {
            Form::Document => {
                write_events_page(&mut out, topic.topic(), partition, &page.events, next, payload_sha256);
                if withheld {
                    mark_withheld(&mut out);
                }
            }
            Form::Lines => {
                for event in &page.events {
                    write_envelope(&mut out, event, Shown { attempts: 1, payload_sha256 });
                    if withheld {
                        mark_withheld(&mut out);
                    }
                    out.push('\n');
                }
            }
            Form::CloudEvents => write_cloud_events(&mut out, &page.events),
        }
        drop(page);
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(form.content_type()))];
        let mut response = (kind, HeldText::body(out, share)).into_response();
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

fn write_cloud_events(out: &mut String, events: &[Arc<Event>]) {
    out.push('[');
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_cloud_event(out, event);
    }
    out.push(']');
}

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Document,
    /// An envelope per line.
    Lines,
    CloudEvents,
}

impl Form {
    fn named(kind: &str) -> Option<Form> {
        match kind {
            NDJSON | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => {
                Some(Form::Lines)
            }
            CLOUD_EVENT | CLOUD_EVENTS => Some(Form::CloudEvents),
            "application/json" => Some(Form::Document),
            _ => None,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Form::Document => "application/json",
            Form::Lines => NDJSON,
            Form::CloudEvents => CLOUD_EVENTS,
        }
    }
}

/// Chooses the format by `Accept`: the type with the highest quality, the first of several. A type that is named counts
/// before one that a wildcard allows. If none is acceptable the response is a JSON document all the same, because that
/// is readable at least. A page of one event is a batch too: paging clients want one shape.
pub(crate) fn form(headers: &HeaderMap) -> Form {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<_> = accepted.flat_map(|value| value.split(',')).map(range).collect();
    let mut best = (0, Form::Document);
    for (kind, quality) in &ranges {
        match Form::named(kind) {
            Some(form) if *quality > best.0 => best = (*quality, form),
            _ => {}
        }
    }
    if best.0 > 0 {
        return best.1;
    }
    // No type is accepted by name: take the first that a wildcard allows and that was not refused by name.
    let wild =
        ranges.iter().any(|(kind, quality)| *quality > 0 && matches!(&**kind, "*/*" | "application/*"));
    let refused = |form| ranges.iter().any(|(kind, _)| Form::named(kind) == Some(form));
    let left = [Form::Document, Form::Lines, Form::CloudEvents].into_iter().find(|form| !refused(*form));
    left.filter(|_| wild).unwrap_or(Form::Document)
}

/// A media type, and its quality in thousandths (RFC 9110, 12.4.2). A quality that cannot be read counts as 1.
fn range(text: &str) -> (String, u32) {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let quality = parts
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .and_then(|(_, value)| value.trim().parse::<f32>().ok())
        .filter(|quality| (0.0..=1.0).contains(quality));
    (kind, quality.map_or(1000, |quality| (quality * 1000.0) as u32))
}
