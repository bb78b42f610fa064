//! Events of a topic: publish some, read a page.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use millrace_bus::{Publish, PublishBatch, Reply, Request};
use millrace_wire::FrameError;
use millrace_wire::http::PublishBody;

use crate::app::SharedApp;
use crate::body::read_text;
use crate::http::json;
use crate::http::page::{self, PageQuery};
use crate::params::AtTopic;
use crate::refusal::Refusal;
use crate::{from_wire, to_wire};

pub(crate) async fn publish(
    State(app): State<SharedApp>,
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
        PublishBody::Many(events) => Request::PublishBatch(PublishBatch { topic, events }),
    };
    match app.ask(request).await? {
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
    at: AtTopic,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let query = PageQuery::of(&app, &at.params)?;
    let fetched = page::fetch(&app, at.topic.clone(), query).await?;
    Ok(fetched.answer(&at.topic, query.partition, page::wants_lines(&headers)))
}
