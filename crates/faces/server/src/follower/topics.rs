//! `GET /topics`, `/topics/{topic}` and `/topics/{topic}/schemas`, from the copy. Groups that have no durable row yet
//! are known to the leader alone.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_bus::TopicView;

use crate::access::Caller;
use crate::follower::app::Via;
use crate::follower::stored_topics::{self, TopicListing};
use crate::follower::{FollowerApp, SharedFollower};
use crate::http::{schemas, topics};
use crate::params::{AtTopic, Params};
use crate::refusal::Refusal;

pub(crate) async fn list(
    State(app): State<SharedFollower>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    if params.text("contains").is_some() || params.text("sort").is_some() {
        return Err(app.moved(Via::Http).refusal());
    }
    let (found, more) = page(&app, &caller, &params, false).await?;
    topics::document_of(found, more)
}

/// Returns a page of the topics of a namespace, and whether there are more.
pub(super) async fn page(
    app: &FollowerApp,
    caller: &Caller,
    params: &Params,
    dead_letters_only: bool,
) -> Result<(Vec<TopicView>, bool), Refusal> {
    let list_max = app.edge.settings.list_max;
    let listing = TopicListing {
        namespace: params.namespace()?,
        after: params.topic("after")?,
        max: params.number("limit", 1..=list_max as u64)?.map_or(list_max, |limit| limit as usize),
        dead_letters_only,
    };
    let by = caller.by_unless_admin();
    app.edge.read(app.store()?, move |store| stored_topics::list(store, &by, &listing)).await
}

pub(crate) async fn show(
    State(app): State<SharedFollower>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    let view = view(&app, &caller, &at).await?;
    topics::shown(app.topic_defaults, StatusCode::OK, view)
}

pub(crate) async fn schemas(
    State(app): State<SharedFollower>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    let wanted = schemas::wanted(&at.params)?;
    let view = view(&app, &caller, &at).await?;
    schemas::of(&app.edge, app.store()?, &at.topic, view.schema, wanted).await
}

async fn view(app: &FollowerApp, caller: &Caller, at: &AtTopic) -> Result<TopicView, Refusal> {
    let (by, topic) = (caller.by_unless_admin(), at.topic.clone());
    let read = app.edge.read(app.store()?, move |store| stored_topics::show(store, &by, &topic));
    read.await?.map_err(|error| Refusal::of(&error))
}
