//! CloudEvents: `POST /topics/{topic}/events` recognises them by content type or `ce-` headers, `GET` writes them if
//! `Accept` asks for them.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use millrace_bus::{Publish, PublishBatch, Request};
use millrace_model::{NewEvent, TopicKey};
use millrace_wire::http::body_text;
use millrace_wire::{
    CE_PREFIX, CLOUD_EVENT, CLOUD_EVENTS, CloudEvent, ErrorCode, FrameError, parse_cloud_event,
    parse_cloud_events,
};

use crate::access::Caller;
use crate::body::read_bytes;
use crate::edge::Edge;
use crate::fairness::RoomShare;
use crate::refusal::Refusal;

/// The common prefix of the content types of CloudEvents.
const FAMILY: &str = "application/cloudevents";
/// Any of these makes a request a CloudEvent in binary mode.
const REQUIRED: &[&str] = &["ce-specversion", "ce-id", "ce-source", "ce-type"];

/// How a request carries CloudEvents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Structured,
    Batched,
    Binary,
}

/// Returns `None` for a request without CloudEvents.
pub(crate) fn mode(headers: &HeaderMap) -> Result<Option<Mode>, Refusal> {
    let kind = content_type(headers).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        CLOUD_EVENT => Ok(Some(Mode::Structured)),
        CLOUD_EVENTS => Ok(Some(Mode::Batched)),
        other if other.starts_with(FAMILY) => {
            let detail = format!("{other:.60} is not read here: send {CLOUD_EVENT} or {CLOUD_EVENTS}");
            Err(Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
        }
        _ if REQUIRED.iter().any(|name| headers.contains_key(*name)) => Ok(Some(Mode::Binary)),
        _ => Ok(None),
    }
}

/// Reads the request's CloudEvents. Returns the engine's request and the body's share of memory, which is kept until
/// they are published.
pub(crate) async fn request(
    edge: &Edge,
    caller: &Caller,
    topic: TopicKey,
    mode: Mode,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Request, RoomShare), Refusal> {
    let settings = &edge.settings;
    let bytes_max =
        if mode == Mode::Batched { settings.batch_body_bytes_max } else { settings.frame_bytes_max };
    let body = read_bytes(edge, body, bytes_max).await?;
    let event = match mode {
        Mode::Structured => parse_cloud_event(body_text(&body.bytes)?)?,
        Mode::Binary => binary(headers, &body.bytes)?,
        Mode::Batched => {
            let events = parse_cloud_events(body_text(&body.bytes)?)?;
            let events =
                events.into_iter().map(|event| fitting(edge, event)).collect::<Result<Vec<_>, _>>()?;
            caller.charge_rest(events.len())?;
            return Ok((Request::PublishBatch(PublishBatch { topic, events }), body.share));
        }
    };
    let publish = Publish { topic, event: fitting(edge, event)?, deliver_at: None };
    Ok((Request::Publish(publish), body.share))
}

/// Refuses an event that would not fit into a frame: base64 and quotes can make it longer than its body was.
fn fitting(edge: &Edge, event: CloudEvent) -> Result<NewEvent, Refusal> {
    let event = event.into_event()?;
    if event.body.bytes() > edge.settings.frame_bytes_max {
        return Err(FrameError::too_large("event", edge.settings.frame_bytes_max).into());
    }
    Ok(event)
}

fn binary(headers: &HeaderMap, body: &[u8]) -> Result<CloudEvent, FrameError> {
    let attributes = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().strip_prefix(CE_PREFIX)?, value.as_bytes())));
    CloudEvent::from_binary(attributes, content_type(headers), body)
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok())
}
