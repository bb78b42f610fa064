//! `GET /stats`: the counters of the bus, and how the server is doing.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_bus::{Reply, Request, Stats};
use millrace_model::{Namespace, Requester, Timestamp};
use millrace_wire::http::{GroupFigures, LoopFigures, ServerFigures, ServerStatsDoc};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::http::{document, lag};
use crate::params::Params;
use crate::refusal::Refusal;
use crate::to_wire;

/// How long the loop may take to say how it is. The bus's figures do not wait longer for it.
const LOOP_WAIT_MS: u64 = 200;

pub(crate) async fn stats(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let namespace = namespace_of(&caller, &params)?;
    let stats = match app.request(Requester::Trusted, Request::Stats).await? {
        Reply::Stats(stats) => stats,
        other => return Err(Refusal::unexpected(&other)),
    };
    let (by_group, groups_left_out) = groups(&app, &stats, &namespace).await?;
    let refusals = app.edge.audit.refusals.counts().filter(|(_, count)| *count > 0);
    let doc = ServerStatsDoc {
        stats: to_wire::stats(&stats, app.broker.metrics().uptime_ms, &namespace),
        server: figures(&app, &stats),
        by_group,
        groups_left_out,
        os: loop_figures(&app).await,
        refusals: refusals.map(|(code, count)| (code.as_str().to_owned(), count)).collect(),
    };
    Ok(document(StatusCode::OK, &doc))
}

/// The namespace that is named; else `default`, or the first namespace of a token that is not valid for `default`.
pub(crate) fn namespace_of(caller: &Caller, params: &Params) -> Result<Namespace, Refusal> {
    let given = params.text("namespace").is_some();
    let home = caller.grant.as_deref().and_then(|grant| grant.namespaces.home()).filter(|_| !given);
    home.map_or_else(|| params.namespace(), |home| Ok(home.clone()))
}

type GroupsByTopic = BTreeMap<String, BTreeMap<String, GroupFigures>>;

/// The groups of a namespace, and how many are left out.
async fn groups(app: &App, stats: &Stats, namespace: &Namespace) -> Result<(GroupsByTopic, u64), Refusal> {
    let here = stats.by_group.iter().filter(|one| one.topic.namespace() == namespace.as_str());
    let max = app.edge.settings.group_labels_max;
    let shown: Vec<_> = here.clone().take(max).cloned().collect();
    let left_out = here.count().saturating_sub(shown.len()) as u64;
    let now: Timestamp = app.broker.clock().now().wall;
    let found = app.read(move |store| {
        let mut found = GroupsByTopic::new();
        let mut lookups = 0;
        for group in shown {
            let lag_ms = lag::lag_ms(store, &group, now, &mut lookups)?;
            let figures =
                GroupFigures { lag: group.lag, lag_ms, inflight: group.inflight, paused: group.paused };
            let of_topic = found.entry(group.topic.topic().to_owned()).or_default();
            of_topic.insert(group.group.to_string(), figures);
        }
        Ok(found)
    });
    Ok((found.await?, left_out))
}

fn figures(app: &App, stats: &Stats) -> ServerFigures {
    let (shell, health) = (app.broker.metrics(), app.broker.health());
    let disk = health.disk_use();
    let bounds = shell.sync.bounds.iter().copied().chain([0]);
    let settings = &app.edge.settings;
    let tails_free = app.edge.tails.available_permits();
    let waits = || health.stall().map(|stall| format!("a commit waits for {}", stall.waits_for));
    ServerFigures {
        commits: shell.commits,
        commit_batches: shell.commit_batches,
        commit_events: shell.commit_events,
        commit_seconds: shell.sync.sum as f64 / 1e6,
        commit_micros: bounds.zip(shell.sync.counts.iter().copied()).collect(),
        commits_retried: shell.commits_retried,
        backlog_batches: shell.backlog_batches,
        backlog_bytes: shell.backlog_bytes,
        backlog_bytes_max: settings.broker.backlog_bytes_max as u64,
        requests_waiting: shell.requests_waiting,
        outbound_bytes: shell.outbound_bytes,
        tail_bytes: stats.tail_bytes,
        fetched_bytes: stats.fetched_bytes,
        store_bytes: disk.map(|disk| disk.store_bytes),
        wal_bytes: disk.map(|disk| disk.wal_bytes),
        free_bytes: disk.map(|disk| disk.free_bytes),
        connections: app.edge.seats.taken() as u64,
        connections_max: settings.connections_max as u64,
        tails: settings.tails_max.saturating_sub(tails_free) as u64,
        tails_max: settings.tails_max as u64,
        storage_failed: health.storage_failed().map(str::to_owned),
        trouble: health.no_space().or_else(|| health.retrying()).or_else(waits),
        stopping: health.stopping(),
    }
}

async fn loop_figures(app: &App) -> Option<LoopFigures> {
    let view =
        tokio::time::timeout(Duration::from_millis(LOOP_WAIT_MS), app.kernel.view()).await.ok()?.ok()?;
    Some(LoopFigures {
        clients: view.gauges.connections as u64,
        pending_requests: view.gauges.pending as u64,
        timers: view.gauges.timers as u64,
        capabilities: view.gauges.capabilities as u64,
        unhealthy: view.gauges.unhealthy as u64,
    })
}
