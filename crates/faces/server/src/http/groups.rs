//! The groups of a topic: lists, moves, pauses and deletes them.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_bus::{BusError, From, Reply, Request};
use millrace_model::Partition;
use millrace_wire::http::{GroupPaused, Seek, Sought};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::body::read_text;
use crate::http::topic_access::is_content_withheld;
use crate::http::{damaged_name, document, withheld};
use crate::params::{AtGroup, AtTopic};
use crate::refusal::Refusal;
use crate::{from_wire, to_wire};

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    let list = Request::ListGroups { topic: at.topic.clone() };
    match app.request(caller.by_unless_admin(), list).await? {
        Reply::Groups(view) => {
            let mut list = to_wire::groups(view).map_err(|error| damaged_name(&error))?;
            if is_content_withheld(&app, &caller, &at.topic).await? {
                withheld::group_list(&mut list);
            }
            Ok(document(StatusCode::OK, &list))
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
    let Seek { from, partition, dry_run } = Seek::parse(&body.text)?;
    let from = from_wire::from(from);
    if dry_run {
        return preview(&app, &caller, at, partition, from).await;
    }
    let request = Request::SeekGroup { topic: at.topic, group: at.group, partition, from };
    match app.request(caller.by(), request).await? {
        Reply::Sought { topic, group, partitions } => {
            let sought = to_wire::sought(&topic, group, &partitions).map_err(|error| damaged_name(&error))?;
            Ok(document(StatusCode::OK, &sought))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

/// Says where a seek would move the group, and moves nothing.
async fn preview(
    app: &SharedApp,
    caller: &Caller,
    at: AtGroup,
    partition: Option<Partition>,
    from: From,
) -> Result<Response, Refusal> {
    let AtGroup { topic, group } = at;
    let view = match app.request(caller.by(), Request::Offsets { topic: topic.clone() }).await? {
        Reply::Offsets(view) => view,
        other => return Err(Refusal::unexpected(&other)),
    };
    let partitions = view.partitions.len() as u32;
    let of = |error: BusError| Refusal::of(&error);
    if let Some(partition) = partition.filter(|partition| partition.0 >= partitions) {
        return Err(of(BusError::UnknownPartition { topic, partition, partitions }));
    }
    if !view.partitions.iter().any(|(_, groups)| groups.contains_key(&group)) {
        return Err(of(BusError::UnknownGroup { topic, group }));
    }
    let logs = view.partitions.into_iter().map(|(log, _)| log);
    let logs: Vec<_> = logs.filter(|log| partition.is_none_or(|only| only == log.partition)).collect();
    let streams = topic.clone();
    let found = app.read(move |store| {
        let mut found = Vec::new();
        for log in logs {
            let next = match from {
                From::Earliest => log.start,
                From::Latest => log.next,
                From::Offset(offset) => offset.min(log.next).max(log.start),
                From::Timestamp(ts) => {
                    store.seek(&streams.stream(log.partition), ts)?.min(log.next).max(log.start)
                }
            };
            found.push((log.partition, next));
        }
        Ok(found)
    });
    let found = found.await?;
    let sought = to_wire::sought(&topic, group, &found).map_err(|error| damaged_name(&error))?;
    Ok(document(StatusCode::OK, &Sought { dry_run: true, ..sought }))
}

pub(crate) async fn pause(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtGroup,
) -> Result<Response, Refusal> {
    set_paused(&app, &caller, at, true).await
}

pub(crate) async fn resume(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtGroup,
) -> Result<Response, Refusal> {
    set_paused(&app, &caller, at, false).await
}

async fn set_paused(
    app: &SharedApp,
    caller: &Caller,
    at: AtGroup,
    paused: bool,
) -> Result<Response, Refusal> {
    let request = Request::PauseGroup { topic: at.topic, group: at.group, paused };
    match app.request(caller.by(), request).await? {
        Reply::GroupPaused { topic, group, paused } => {
            let topic = to_wire::topic_name(&topic).map_err(|error| damaged_name(&error))?;
            Ok(document(StatusCode::OK, &GroupPaused { topic, group, paused }))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}
