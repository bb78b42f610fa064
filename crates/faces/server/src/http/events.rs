//! The events of a topic: publishes some, reads a page.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use millrace_bus::{Publish, PublishBatch, Reply, Request};
use millrace_model::TopicKey;
use millrace_wire::FrameError;
use millrace_wire::http::PublishBody;

use crate::access::Caller;
use crate::app::SharedApp;
use crate::body::read_text;
use crate::edge::Edge;
use crate::fairness::RoomShare;
use crate::http::page::{self, PageQuery};
use crate::http::{cloud_events, json};
use crate::observe::HttpRequester;
use crate::params::AtTopic;
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
    let query = PageQuery::of(&app.edge, &at.params)?;
    let fetched = page::fetch(&app.edge, &app.store, caller.by(), at.topic.clone(), query).await?;
    app.broker.count_damaged(fetched.page.damaged.len());
    Ok(fetched.answer(&at.topic, &query, page::form(&headers)))
}
