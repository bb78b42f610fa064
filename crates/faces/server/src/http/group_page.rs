//! A group: its members, what they hold, and how far it is, in events and in time.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_bus::{GroupInspection, GroupView, OpenEvent, OpenEventState, Reply, Request};
use millrace_model::{Offset, Partition, Timestamp};
use millrace_wire::http::{GroupPage, GroupPartition, InflightDoc, InflightList, MemberDoc};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::http::topic_access::is_content_withheld;
use crate::http::{damaged_name, document, lag, withheld};
use crate::params::{AtGroup, Params};
use crate::refusal::Refusal;
use crate::to_wire;

/// Events in flight that one answer lists.
const INFLIGHT_MAX: u64 = 1000;

pub(crate) async fn show(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtGroup,
) -> Result<Response, Refusal> {
    let topic = at.topic.clone();
    let seen = inspect(&app, &caller, at, 0).await?;
    let now = app.broker.clock().now().wall;
    let places: Vec<(Partition, GroupView)> = seen.detail.partitions.clone();
    let times = app.read(move |store| {
        let mut times: BTreeMap<Partition, (Option<Timestamp>, Option<u64>)> = BTreeMap::new();
        for (partition, view) in places.into_iter().take(lag::LOOKUPS_MAX) {
            let stream = topic.stream(partition);
            let committed_ts = match view.committed {
                Offset::ZERO => None,
                committed => lag::ts_at(store, &stream, committed)?,
            };
            let lag_ms = match view.lag {
                0 => Some(0),
                _ => lag::ts_at(store, &stream, view.committed.next())?.map(|ts| now.0.saturating_sub(ts.0)),
            };
            times.insert(partition, (committed_ts, lag_ms));
        }
        Ok(times)
    });
    let times = times.await?;
    let partitions: Vec<GroupPartition> = seen
        .detail
        .partitions
        .iter()
        .map(|(partition, view)| {
            let (committed_ts, lag_ms) = times.get(partition).copied().unwrap_or_default();
            let at = to_wire::group_offsets(*view);
            GroupPartition { partition: *partition, at, committed_ts, lag_ms }
        })
        .collect();
    let filter = seen.detail.filter.clone();
    let mut doc = GroupPage {
        withheld: false,
        topic: to_wire::topic_name(&seen.topic).map_err(|error| damaged_name(&error))?,
        group: seen.detail.group.clone(),
        paused: seen.detail.paused,
        created: seen.detail.created,
        filter: (!filter.is_empty()).then_some(filter),
        lag: seen.detail.partitions.iter().map(|(_, view)| view.lag).sum(),
        lag_ms: partitions.iter().filter_map(|one| one.lag_ms).max(),
        inflight: seen.detail.partitions.iter().map(|(_, view)| view.inflight).sum(),
        ack_timeout_ms: seen.ack_timeout_ms,
        members: members(&app, &seen),
        partitions,
    };
    if is_content_withheld(&app, &caller, &seen.topic).await? {
        withheld::group_page(&mut doc);
    }
    Ok(document(StatusCode::OK, &doc))
}

pub(crate) async fn inflight(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtGroup,
    params: Params,
) -> Result<Response, Refusal> {
    let max = params.number("limit", 1..=INFLIGHT_MAX)?.unwrap_or(INFLIGHT_MAX);
    let seen = inspect(&app, &caller, at, max as usize).await?;
    let now = app.broker.clock().now().wall;
    let inflight = seen.open.iter().map(|open| shown(open, now, seen.ack_timeout_ms)).collect();
    let mut list = InflightList { inflight, more: seen.more, withheld: false };
    if is_content_withheld(&app, &caller, &seen.topic).await? {
        withheld::inflight(&mut list);
    }
    Ok(document(StatusCode::OK, &list))
}

async fn inspect(
    app: &SharedApp,
    caller: &Caller,
    at: AtGroup,
    open_max: usize,
) -> Result<Box<GroupInspection>, Refusal> {
    let request = Request::InspectGroup { topic: at.topic, group: at.group, open_max };
    match app.request(caller.by_unless_admin(), request).await? {
        Reply::GroupInspected(seen) => Ok(seen),
        other => Err(Refusal::unexpected(&other)),
    }
}

fn members(app: &App, seen: &GroupInspection) -> Vec<MemberDoc> {
    let member = |view: &millrace_bus::MemberView| {
        let facts = app.edge.connections.of_bus(view.conn.0);
        MemberDoc {
            connection: view.conn.0,
            agent: facts.as_ref().and_then(|facts| facts.agent.clone()),
            peer: facts.as_ref().map(|facts| facts.peer.clone()),
            since: facts.as_ref().map(|facts| facts.since),
            max_inflight: view.window,
            credits: view.credits,
            inflight: view.inflight,
            congested: view.congested,
            oldest_ms: view.oldest_ms,
        }
    };
    seen.members.iter().map(member).collect()
}

fn shown(open: &OpenEvent, now: Timestamp, ack_timeout_ms: u64) -> InflightDoc {
    let in_ms = |left_ms: u64| Timestamp(now.0.saturating_add(left_ms));
    let (state, connection, delivered_at, until) = match open.state {
        OpenEventState::Leased { conn, left_ms } => {
            let held_ms = ack_timeout_ms.saturating_sub(left_ms);
            let delivered_at = Timestamp(now.0.saturating_sub(held_ms));
            ("leased", Some(conn.0), Some(delivered_at), Some(in_ms(left_ms)))
        }
        OpenEventState::Ready => ("ready", None, None, None),
        OpenEventState::Later { left_ms } => ("later", None, None, Some(in_ms(left_ms))),
    };
    InflightDoc {
        partition: open.partition,
        offset: open.offset,
        id: open.id.as_ref().map(ToString::to_string),
        attempts: open.attempts,
        state: state.to_owned(),
        connection,
        delivered_at,
        until,
        reason: open.reason.clone(),
    }
}
