//! `GET /topics/{topic}/tail`: events as they are published, one per line, without a group. Nothing is leased, no group
//! moves and none is left behind.
//!
//! A reader that is too slow, or a topic that is too fast for the rate, leaves out events and says how many: a tail is
//! for watching. Consumers subscribe.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use millrace_model::{Offset, Partition, Timestamp};
use millrace_wire::ErrorCode;
use millrace_wire::http::{mark_withheld, write_found};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::access::Caller;
use crate::app::SharedApp;
use crate::edge::Edge;
use crate::http::event_filter::EventFilter;
use crate::http::event_search::{Cursor, Order, Search, SearchStart};
use crate::http::events::{partition_of, run};
use crate::http::withheld;
use crate::observe::ContentRead;
use crate::params::{AtTopic, Params};
use crate::refusal::{Refusal, overloaded};

/// How often the store is asked for new events.
const LOOK_MS: u64 = 200;
const BEAT_MS: u64 = 5_000;
const RATE_DEFAULT: u64 = 200;
const RATE_MAX: u64 = 2_000;
/// Events behind which a tail may be before it leaves some out, in seconds of its rate.
const BEHIND_SECONDS: u64 = 5;
/// Bytes of events in one piece of the answer.
const PIECE_BYTES: usize = 1 << 20;
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// A seat of a tail, or of a search that waits.
pub(crate) fn seat(edge: &Edge) -> Result<OwnedSemaphorePermit, Refusal> {
    edge.tails.clone().try_acquire_owned().map_err(|_| {
        let max = edge.settings.tails_max;
        overloaded(format!(
            "all {max} seats for tails and waiting searches are taken (--tails-max): try again later"
        ))
    })
}

pub(crate) async fn tail(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    let AtTopic { topic, params } = at;
    let partition = partition_of(&params, None)?;
    let rate = params.number("rate", 1..=RATE_MAX)?.unwrap_or(RATE_DEFAULT);
    withheld::check_params(&caller, &params)?;
    let filter = EventFilter::of(&params)?;
    let with_lineage = params.flag("lineage")?;
    let start = start_of(&params, partition)?;
    let seat = seat(&app.edge)?;
    let search = Search {
        topic,
        order: Order::Ascending,
        partition,
        filter,
        events_max: 0,
        bytes_max: PIECE_BYTES,
        scan_max: app.edge.settings.scan_events_max as u64,
    };
    // Finds the places to begin at, and whether the caller may read the topic: refusals need a status.
    let found = run(&app, &caller, &search, start).await?;
    if !caller.is_withheld() {
        app.edge.content_read(&caller, &ContentRead::tail(&search.topic));
    }
    let now = Instant::now();
    let state = TailState {
        app,
        caller,
        search,
        cursor: found.cursor,
        rate,
        allowed: rate,
        with_lineage,
        beat_at: now,
        look_at: now,
        _seat: Arc::new(seat),
    };
    let pieces = stream::unfold(Some(state), |state| async move { state?.piece().await });
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    let unkept = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(([kind, unkept], Body::from_stream(pieces)).into_response())
}

/// `latest`, `offset:N` or `ts:N`.
fn start_of(params: &Params, partition: Option<Partition>) -> Result<SearchStart, Refusal> {
    let bad = |detail: String| Refusal::new(ErrorCode::BadFrame, detail);
    let Some(from) = params.text("from").filter(|from| *from != "latest") else {
        return Ok(SearchStart::Latest);
    };
    let number = |text: &str| text.parse().ok().filter(|number| *number <= INTEGER_MAX);
    if from.starts_with("offset:") && partition.is_none() {
        return Err(bad("from names an offset of one partition: name it with partition=N".to_owned()));
    }
    let start = match from.split_once(':') {
        Some(("offset", text)) => number(text).map(|offset: u64| SearchStart::Offset(Offset(offset.max(1)))),
        Some(("ts", text)) => number(text).map(|ts| SearchStart::Timestamp(Timestamp(ts))),
        _ => None,
    };
    start.ok_or_else(|| bad(format!("from is {from:.40?}: it must be latest, offset:N or ts:N")))
}

struct TailState {
    app: SharedApp,
    caller: Caller,
    search: Search,
    cursor: Cursor,
    /// Events per second.
    rate: u64,
    /// Events that may be sent now.
    allowed: u64,
    with_lineage: bool,
    beat_at: Instant,
    look_at: Instant,
    _seat: Arc<OwnedSemaphorePermit>,
}

type Piece = Result<Bytes, std::convert::Infallible>;

impl TailState {
    /// Waits for the next piece of the answer. Asked only when the reader has taken the piece before, so that a slow
    /// reader holds no memory.
    async fn piece(mut self) -> Option<(Piece, Option<TailState>)> {
        loop {
            tokio::time::sleep_until(self.look_at).await;
            if self.is_over() {
                return None;
            }
            self.look_at = Instant::now() + Duration::from_millis(LOOK_MS);
            self.allowed = (self.allowed + (self.rate * LOOK_MS).div_ceil(1000)).min(self.rate);
            let mut out = String::new();
            let ended = self.look(&mut out).await.err();
            if out.is_empty() && ended.is_none() && Instant::now() >= self.beat_at {
                let now = self.app.broker.clock().now().wall;
                out.push_str(&format!("{{\"beat\":{}}}\n", now.0));
            }
            if let Some(refusal) = ended {
                tracing::debug!(?refusal, "a tail ended");
                return (!out.is_empty()).then(|| (Ok(out.into()), None));
            }
            if !out.is_empty() {
                self.beat_at = Instant::now() + Duration::from_millis(BEAT_MS);
                return Some((Ok(out.into()), Some(self)));
            }
        }
    }

    /// The server stops, may have been replaced, or the token is not accepted any more.
    fn is_over(&self) -> bool {
        let health = self.app.broker.health();
        let revoked = self.caller.grant.as_deref().is_some_and(|grant| grant.ended().is_some());
        health.stopping()
            || health.storage_failed().is_some()
            || *self.app.edge.closing.borrow()
            || revoked
            || self.app.edge.doubt.reason().is_some()
    }

    async fn look(&mut self, out: &mut String) -> Result<(), Refusal> {
        self.skip(out).await?;
        if self.allowed == 0 {
            return Ok(());
        }
        let search = Search { events_max: self.allowed as usize, ..self.search.clone() };
        let found = run(&self.app, &self.caller, &search, SearchStart::Cursor(self.cursor.clone())).await?;
        let is_withheld = self.caller.is_withheld();
        for event in &found.events {
            if is_withheld {
                write_found(out, &withheld::event(event), self.with_lineage);
                mark_withheld(out);
            } else {
                write_found(out, event, self.with_lineage);
            }
            out.push('\n');
        }
        self.allowed = self.allowed.saturating_sub(found.events.len() as u64);
        self.cursor = found.cursor;
        Ok(())
    }

    /// Goes on at the end, if more is behind than will be sent within a few seconds. With a filter most of it would not
    /// have been sent, so more may be behind.
    async fn skip(&mut self, out: &mut String) -> Result<(), Refusal> {
        let (search, cursor) = (self.search.clone(), self.cursor.clone());
        let behind = self.app.read(move |store| search.behind(store, &cursor)).await?;
        let filtered = if self.search.filter.is_empty() { 1 } else { 100 };
        if behind <= self.rate.saturating_mul(BEHIND_SECONDS).saturating_mul(filtered) {
            return Ok(());
        }
        let search = Search { events_max: 0, ..self.search.clone() };
        self.cursor = run(&self.app, &self.caller, &search, SearchStart::Latest).await?.cursor;
        out.push_str(&format!("{{\"skipped\":{behind}}}\n"));
        Ok(())
    }
}
