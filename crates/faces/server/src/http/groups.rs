//! The groups of a topic: lists, moves and deletes them.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_bus::{Reply, Request};
use millrace_wire::http::Seek;

use crate::access::Caller;
use crate::app::SharedApp;
use crate::body::read_text;
use crate::http::{damaged_name, document};
use crate::params::{AtGroup, AtTopic};
use crate::refusal::Refusal;
use crate::{from_wire, to_wire};

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    match app.request(caller.by_unless_admin(), Request::ListGroups { topic: at.topic }).await? {
        Reply::Groups(view) => {
            Ok(document(StatusCode::OK, &to_wire::groups(view).map_err(|error| damaged_name(&error))?))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn delete(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtGroup,
) -> Result<Response, Refusal> {
    // The engine checks the topic's access list for everybody but administrators, and the group's list for all.
    match app.request(caller.by(), Request::DeleteGroup { topic: at.topic, group: at.group }).await? {
        Reply::GroupDeleted { .. } => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn seek(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtGroup,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read_text(&app.edge, body, app.edge.settings.frame_bytes_max).await?;
    let Seek { from, partition } = Seek::parse(&body.text)?;
    let from = from_wire::from(from);
    let request = Request::SeekGroup { topic: at.topic, group: at.group, partition, from };
    match app.request(caller.by(), request).await? {
        Reply::Sought { topic, group, partitions } => {
            let sought = to_wire::sought(&topic, group, &partitions).map_err(|error| damaged_name(&error))?;
            Ok(document(StatusCode::OK, &sought))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}
