//! The events of a topic: publishes some, reads a page, searches.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::{Publish, PublishBatch, Reply, Request};
use millrace_model::{Offset, Partition, Timestamp, TopicKey};
use millrace_store::ReadLimit;
use millrace_wire::http::{PublishBody, mark_withheld, write_events_found, write_found};
use millrace_wire::{ErrorCode, FrameError};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::body::read_text;
use crate::edge::Edge;
use crate::fairness::RoomShare;
use crate::http::event_filter::EventFilter;
use crate::http::event_search::{Cursor, Found, Order, Search, SearchStart};
use crate::http::page::{self, Form, HeldText, PageQuery};
use crate::http::topic_access::check_topic;
use crate::http::{cloud_events, json, tail, withheld};
use crate::observe::{ContentRead, HttpRequester};
use crate::params::{AtTopic, Params};
use crate::refusal::Refusal;
use crate::to_wire;

pub(crate) async fn publish(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let (mut request, _share) = match cloud_events::mode(&headers)? {
        Some(mode) => cloud_events::request(&app.edge, &caller, at.topic, mode, &headers, body).await?,
        None => request(&app.edge, &caller, at.topic, body).await?,
    };
    HttpRequester::stamp(&mut request);
    match app.request(caller.by(), request).await? {
        reply @ (Reply::Published { .. } | Reply::PublishedBatch { .. }) => {
            let mut out = String::new();
            to_wire::answer(&mut out, &reply, None);
            Ok(json(StatusCode::OK, out))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

/// Reads the request's events. Returns the engine's request and the body's share of memory, which is kept until they
/// are published.
async fn request(
    edge: &Edge,
    caller: &Caller,
    topic: TopicKey,
    body: Body,
) -> Result<(Request, RoomShare), Refusal> {
    let body = read_text(edge, body, edge.settings.batch_body_bytes_max).await?;
    let is_array = body.text.trim_start().starts_with('[');
    if !is_array && body.text.len() > edge.settings.frame_bytes_max {
        return Err(FrameError::too_large("event", edge.settings.frame_bytes_max).into());
    }
    let request = match PublishBody::parse(&body.text)? {
        PublishBody::One { event, deliver_at } => Request::Publish(Publish { topic, event, deliver_at }),
        PublishBody::Many(events) => {
            caller.charge_rest(events.len())?;
            Request::PublishBatch(PublishBatch { topic, events })
        }
    };
    Ok((request, body.share))
}

pub(crate) async fn read(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    if is_search(&at.params) {
        return search(&app, &caller, at, page::form(&headers)).await;
    }
    withheld::check_params(&caller, &at.params)?;
    let query = PageQuery::of(&app.edge, &at.params)?;
    let fetched = page::fetch(&app.edge, &app.store, caller.by(), at.topic.clone(), query).await?;
    app.broker.count_damaged(fetched.page.damaged.len());
    Ok(fetched.for_caller(&app.edge, &caller, &at.topic).answer(&at.topic, &query, page::form(&headers)))
}

/// The parameters of a search: a request with none of them is a plain page.
const SEARCH_PARAMS: &[&str] =
    &["order", "cursor", "key", "header", "contains", "path", "lineage", "scan", "wait"];
/// The longest that a search waits for events.
const WAIT_MS_MAX: u64 = 30_000;
/// How often it looks meanwhile.
const LOOK_MS: u64 = 100;
/// Events that a search looks at if it does not say how many.
const SCAN_DEFAULT: u64 = 10_000;
const LIMIT_DEFAULT: u64 = 100;
const INTEGER_MAX: u64 = (1 << 53) - 1;
const CURSOR: HeaderName = HeaderName::from_static("millrace-cursor");
const SCANNED: HeaderName = HeaderName::from_static("millrace-scanned");
const MORE: HeaderName = HeaderName::from_static("millrace-more");

pub(crate) fn is_search(params: &Params) -> bool {
    SEARCH_PARAMS.iter().any(|name| params.text(name).is_some()) || params.text("partition") == Some("all")
}

/// Which partition to read: `all` or none named in a tail, else the one that is named.
pub(crate) fn partition_of(
    params: &Params,
    default: Option<Partition>,
) -> Result<Option<Partition>, Refusal> {
    match params.text("partition") {
        Some("all") => Ok(None),
        Some(_) => {
            let number = params.number("partition", 0..=u64::from(u32::MAX))?;
            Ok(number.map(|number| Partition(number as u32)))
        }
        None => Ok(default),
    }
}

fn start_of(params: &Params, partition: Option<Partition>) -> Result<SearchStart, Refusal> {
    let bad = |detail: &str| Err(Refusal::new(ErrorCode::BadFrame, detail));
    let from = params.number("from", 0..=INTEGER_MAX)?;
    let ts = params.number("ts", 0..=INTEGER_MAX)?;
    match (params.text("cursor"), from, ts) {
        (Some(cursor), None, None) => Cursor::parse(cursor).map(SearchStart::Cursor),
        (None, Some(_), None) if partition.is_none() => {
            bad("from is an offset of one partition: name it with partition=N, or begin at a time with ts")
        }
        (None, Some(from), None) => Ok(SearchStart::Offset(Offset(from.max(1)))),
        (None, None, Some(ts)) => Ok(SearchStart::Timestamp(Timestamp(ts))),
        (None, None, None) => Ok(SearchStart::End),
        _ => bad("cursor, from and ts are given together: give one of them"),
    }
}

async fn search(app: &SharedApp, caller: &Caller, at: AtTopic, form: Form) -> Result<Response, Refusal> {
    let AtTopic { topic, params } = at;
    withheld::check_params(caller, &params)?;
    let settings = &app.edge.settings;
    let partition = partition_of(&params, Some(Partition(0)))?;
    let limit = params.number("limit", 1..=settings.page_events_max as u64)?.unwrap_or(LIMIT_DEFAULT);
    let scan_max = settings.scan_events_max as u64;
    let search = Search {
        topic: topic.clone(),
        order: Order::of(&params)?,
        partition,
        filter: EventFilter::of(&params)?,
        events_max: limit as usize,
        bytes_max: settings.page_bytes_max,
        scan_max: params.number("scan", 1..=scan_max)?.unwrap_or(SCAN_DEFAULT.min(scan_max)),
    };
    let mut start = start_of(&params, partition)?;
    let with_lineage = params.flag("lineage")?;
    let wait_ms = params.number("wait", 0..=WAIT_MS_MAX)?.unwrap_or(0);
    if wait_ms > 0 && search.order == Order::Descending {
        let detail = "wait needs ascending order: nothing is published before the oldest event";
        return Err(Refusal::new(ErrorCode::BadFrame, detail));
    }
    let bytes = ReadLimit { events_max: search.events_max, bytes_max: search.bytes_max };
    let share = page::share(&app.edge, bytes).await?;
    let _seat = if wait_ms > 0 { Some(tail::seat(&app.edge)?) } else { None };
    let until = Instant::now() + Duration::from_millis(wait_ms);
    let mut scanned = 0;
    let mut found = loop {
        let found = run(app, caller, &search, start).await?;
        scanned += found.scanned;
        let over = Instant::now() >= until || app.broker.health().stopping();
        if !found.events.is_empty() || found.more || over {
            break found;
        }
        start = SearchStart::Cursor(found.cursor);
        HttpRequester::wait_for(tokio::time::sleep(Duration::from_millis(LOOK_MS))).await?;
    };
    app.broker.count_damaged(found.damaged);
    let is_withheld = caller.is_withheld();
    if is_withheld {
        withheld::events(&mut found.events);
    } else {
        app.edge.content_read(caller, &ContentRead::page(&topic, &found.events));
    }
    let mut out = String::new();
    let cursor = found.cursor.text();
    let kind = match form {
        Form::Lines => {
            for event in &found.events {
                write_found(&mut out, event, with_lineage);
                if is_withheld {
                    mark_withheld(&mut out);
                }
                out.push('\n');
            }
            "application/x-ndjson"
        }
        Form::Document | Form::CloudEvents => {
            let rest = (cursor.as_str(), scanned, found.more);
            write_events_found(&mut out, topic.topic(), partition, &found.events, with_lineage, rest);
            if is_withheld {
                mark_withheld(&mut out);
            }
            "application/json"
        }
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(SCANNED, HeaderValue::from(scanned));
    headers.insert(MORE, HeaderValue::from_static(if found.more { "true" } else { "false" }));
    if let Ok(cursor) = HeaderValue::from_str(&cursor) {
        headers.insert(CURSOR, cursor);
    }
    Ok((headers, HeldText::body(out, share)).into_response())
}

/// Searches once, on a thread that may block; checks first that the caller may read the topic.
pub(crate) async fn run(
    app: &SharedApp,
    caller: &Caller,
    search: &Search,
    start: SearchStart,
) -> Result<Found, Refusal> {
    let (search, by) = (search.clone(), caller.by());
    let read = app.read(move |store| {
        let partition = search.partition.unwrap_or(Partition(0));
        match check_topic(store, &by, &search.topic, partition)? {
            Err(error) => Ok(Err(Refusal::of(&error))),
            Ok(()) => Ok(search.run(store, &start)?.map_err(Refusal::from)),
        }
    });
    read.await?
}
