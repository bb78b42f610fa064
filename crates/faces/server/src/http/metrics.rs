//! `GET /metrics`: the Prometheus text format.
//!
//! Every name is written once, in the tables below; docs/operations.md lists them, and a test compares the two. The
//! values of labels are bounded: codes are a closed list, and topics and groups past their bound are summed up.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use millrace_admin::HandlerView;
use millrace_broker::{Health, HistogramView, ShellView};
use millrace_bus::{AckTimes, Reply, Request, Stats, TopicCounters};
use millrace_model::Requester;
use millrace_telemetry::Tracer;

use crate::access::{Caller, NamespaceRule};
use crate::app::SharedApp;
use crate::edge::Edge;
use crate::follower::FollowStatus;
use crate::http::durable_handlers::HandlerFigures;
use crate::http::group_metrics::{self, GroupLags};
use crate::http::prometheus::Page;
use crate::http::status::Role;
use crate::http::{loop_metrics, process, schedule_metrics};
use crate::latencies::Latencies;
use crate::lead_doubt::LeadDoubt;
use crate::settings::ServerSettings;
use crate::to_wire::OTHER;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long the engine may take to answer. If it does not, because the disk is stuck, `/metrics` shows the shell's
/// figures alone: they matter most at such a time.
const ENGINE_WAIT_MS: u64 = 1000;

pub(crate) async fn metrics(State(app): State<SharedApp>, caller: Caller) -> Response {
    let mut page = Page::default();
    let asked = tokio::time::timeout(
        Duration::from_millis(ENGINE_WAIT_MS),
        app.request(Requester::Trusted, Request::Stats),
    )
    .await;
    // A token that may read metrics must not learn the names of other tenants' topics.
    let namespaces = caller.grant.as_deref().map(|grant| &grant.namespaces);
    let may_see = |namespace: &str| namespaces.is_none_or(|rule: &NamespaceRule| rule.allows(namespace));
    if let Ok(Ok(Reply::Stats(mut stats))) = asked {
        stats.by_topic.retain(|topic, _| may_see(topic.namespace()));
        stats.by_group.retain(|one| may_see(one.topic.namespace()));
        write_bus(&mut page, &stats);
        write_topics(&mut page, &stats, app.edge.settings.topic_labels_max);
        let group_labels_max = app.edge.settings.group_labels_max;
        group_metrics::write_groups(&mut page, &stats, group_labels_max);
        group_metrics::write_dead_letters(&mut page, &stats, app.edge.settings.topic_labels_max);
        let lags = GroupLags::read(&app, &stats);
        if let Ok(Ok(lags)) = tokio::time::timeout(Duration::from_millis(ENGINE_WAIT_MS), lags).await {
            group_metrics::write_lags(&mut page, &stats, &lags, group_labels_max);
        }
    }
    let seen = app.handler_figures(app.broker.clock().now().wall);
    let handlers =
        tokio::time::timeout(Duration::from_millis(ENGINE_WAIT_MS), seen).await.unwrap_or_default();
    let handlers: Vec<_> = handlers.iter().filter(|one| may_see(one.namespace.as_str())).collect();
    write_handlers(&mut page, &handlers, app.edge.settings.group_labels_max);
    let now = app.broker.clock().now().wall;
    let seen = schedule_metrics::read(&app, now);
    if let Ok(Ok(schedules)) = tokio::time::timeout(Duration::from_millis(ENGINE_WAIT_MS), seen).await {
        let schedules: Vec<_> = schedules.iter().filter(|one| may_see(one.0.as_str())).collect();
        schedule_metrics::write(&mut page, &schedules, now, app.edge.settings.group_labels_max);
    }
    write_shell(&mut page, &app.broker.metrics(), app.broker.health());
    if let Ok(Ok(view)) = tokio::time::timeout(Duration::from_millis(ENGINE_WAIT_MS), app.kernel.view()).await
    {
        loop_metrics::write_os(&mut page, &view);
    }
    if let Some(copy) = app.edge.copy.get() {
        write_copy(&mut page, Role::Leader, &copy.status());
        write_doubt(&mut page, &app.edge.doubt);
    }
    write_edge(&mut page, &app.edge);
    answer(page)
}

pub(crate) fn answer(page: Page) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))], page.text()).into_response()
}

/// Writes how this server's copy of a shared store is doing.
pub(crate) fn write_copy(page: &mut Page, role: Role, status: &FollowStatus) {
    for (name, help, value) in [
        (
            "follower",
            "0 while this server leads the shared store, 1 while it follows another.",
            (role == Role::Follower).into(),
        ),
        ("store_position", "The last record of the shared store in this server's copy.", status.position),
        (
            "store_head_seen",
            "The newest record of the shared store that this server knows of.",
            status.head_seen,
        ),
        (
            "store_reachable",
            "1 while the engine of the shared store can be reached and used.",
            status.reachable.is_ok().into(),
        ),
    ] {
        page.single("gauge", name, help, value);
    }
    let help = "Events that this server's copy had and the engine of the shared store has lost.";
    page.single("counter", "store_lost_events_total", help, status.lost_events);
    page.head("gauge", "store_last_record_seconds", "Time since a new record of the shared store was seen.");
    if let Some(silent_for) = status.silent_for {
        page.labelled("store_last_record_seconds", &[], silent_for.as_secs_f64());
    }
}

/// Writes whether this server leads and may have been replaced without knowing it.
pub(crate) fn write_doubt(page: &mut Page, doubt: &LeadDoubt) {
    let is_doubted = u64::from(doubt.reason().is_some());
    page.single(
        "gauge",
        "lead_in_doubt",
        "1 while this server leads, cannot reach the engine and may have been replaced.",
        is_doubted,
    );
    page.single("counter", "lead_doubts_total", "How often the lead was in doubt.", doubt.times());
}

fn write_bus(page: &mut Page, stats: &Stats) {
    let counters = &stats.counters;
    for (name, help, value) in [
        (
            "events_published_total",
            "Events stored, without those of the server's own topics.",
            counters.published,
        ),
        ("events_system_total", "Events stored in the server's own topics.", counters.system),
        (
            "events_duplicate_total",
            "Publishes answered from an earlier one with the same id.",
            counters.duplicates,
        ),
        ("events_delivered_total", "Events sent to members of groups.", counters.delivered),
        ("events_acked_total", "Events acknowledged.", counters.acked),
        ("events_nacked_total", "Events refused by their receiver.", counters.nacked),
        ("events_redelivered_total", "Deliveries after the first.", counters.redelivered),
        ("events_timed_out_total", "Deliveries not acknowledged in time.", counters.timed_out),
        (
            "events_given_back_total",
            "Deliveries that ended with their connection and were no attempt.",
            counters.given_back,
        ),
        ("events_skipped_total", "Events removed by retention before a group saw them.", counters.skipped),
        ("events_filtered_total", "Events turned away by a group's filter.", counters.filtered),
        (
            "events_quarantined_total",
            "Delayed events that could not be read and were set aside.",
            counters.quarantined,
        ),
        (
            "engine_never_total",
            "States of the bus's engine that cannot occur but did: each is a bug of this server.",
            counters.never,
        ),
    ] {
        page.single("counter", name, help, value);
    }
    let name = "events_dead_lettered_total";
    page.head("counter", name, "Events given up on, by how their last delivery ended.");
    let letters = counters.dead_lettered;
    for (reason, value) in
        [("refused", letters.refused), ("timeout", letters.timed_out), ("disconnect", letters.disconnected)]
    {
        page.labelled(name, &[("reason", reason)], value);
    }
    let ack_times = HistogramView {
        bounds: AckTimes::BOUNDS_MS,
        counts: stats.ack_times.counts.to_vec(),
        sum: stats.ack_times.sum_ms,
    };
    page.histogram("ack_seconds", "From a delivery to its acknowledgement.", &ack_times, 1e-3);
    for (name, help, value) in [
        ("events_inflight", "Events delivered and not acknowledged.", stats.inflight),
        ("events_lag", "Events stored and not committed, over all groups.", stats.lag),
        ("connections", "WebSocket connections.", stats.connections),
        ("subscriptions", "Memberships in groups.", stats.subscriptions),
        ("topics", "Topics.", stats.topics),
        ("groups", "Groups.", stats.groups),
        ("tail_bytes", "Fresh events kept in memory for groups at the tail.", stats.tail_bytes),
        ("fetched_bytes", "Events read ahead for groups that are behind.", stats.fetched_bytes),
    ] {
        page.single("gauge", name, help, value);
    }
}

/// The first topics by name get lines of their own, the others are summed up. A topic moved between the two leaves the
/// total of a counter unchanged.
fn write_topics(page: &mut Page, stats: &Stats, labels_max: usize) {
    let mut other = TopicCounters::default();
    for counters in stats.by_topic.values().skip(labels_max) {
        other.published += counters.published;
        other.delivered += counters.delivered;
    }
    let has_other = stats.by_topic.len() > labels_max;
    let mut family = |name: &str, help: &str, value: fn(&TopicCounters) -> u64| {
        page.head("counter", name, help);
        for (topic, counters) in stats.by_topic.iter().take(labels_max) {
            let labels = [("namespace", topic.namespace()), ("topic", topic.topic())];
            page.labelled(name, &labels, value(counters));
        }
        if has_other {
            page.labelled(name, &[("namespace", OTHER), ("topic", OTHER)], value(&other));
        }
    };
    family("topic_published_total", "Events stored, by topic.", |counters| counters.published);
    family("topic_delivered_total", "Events sent to members of groups, by topic.", |counters| {
        counters.delivered
    });
}

fn write_handlers(page: &mut Page, handlers: &[&HandlerFigures], labels_max: usize) {
    let (shown, rest) = handlers.split_at(labels_max.min(handlers.len()));
    let mut family = |name: &str, help: &str, value: fn(&HandlerView) -> u64| {
        page.head("gauge", name, help);
        for one in shown {
            let (namespace, view) = (one.namespace.as_str(), &one.view);
            let labels =
                [("namespace", namespace), ("topic", &view.event_type), ("handler", &view.handler_id)];
            page.labelled(name, &labels, value(view));
        }
        if !rest.is_empty() {
            let labels = [("namespace", OTHER), ("topic", OTHER), ("handler", OTHER)];
            page.labelled(name, &labels, rest.iter().map(|one| value(&one.view)).sum::<u64>());
        }
    };
    family("handler_events_pending", "Events a durable handler has not finished.", |one| one.pending);
    family("handler_events_claimed", "Events claimed by sessions, by durable handler.", |one| one.claimed);
    family("handler_dead_letters", "Events a durable handler gave up on.", |one| one.dead_letters);
    let help = "1 if a durable handler was paused from outside and claims nothing.";
    family("handler_paused", help, |one| u64::from(one.paused));
}

fn write_shell(page: &mut Page, shell: &ShellView, health: &Health) {
    for (name, help, value) in [
        ("commits_total", "Commits, each with one sync.", shell.commits),
        (
            "commits_retried_total",
            "Attempts to commit that left nothing and were made again: the disk was full, or locked.",
            shell.commits_retried,
        ),
        ("commit_batches_total", "Batches merged into commits.", shell.commit_batches),
        ("commit_events_total", "Events appended by commits.", shell.commit_events),
        ("maintained_rows_total", "Rows of housekeeping.", shell.maintained_rows),
        ("owner_turns_total", "Rounds of the owner loop.", shell.turns),
        ("reads_total", "Reads the engine asked for.", shell.reads),
        ("reads_failed_total", "Reads that failed and were tried again.", shell.reads_failed),
        ("events_damaged_total", "Damaged events met while reading.", shell.damaged),
        (
            "connections_dropped_slow_total",
            "Connections dropped because they did not read.",
            shell.dropped_slow,
        ),
        ("clock_steps_total", "Steps of the wall clock by more than a minute.", shell.clock_steps),
        (
            "notes_dropped_total",
            "Notes of the engine that the log and the audit missed.",
            shell.notes_dropped,
        ),
    ] {
        page.single("counter", name, help, value);
    }
    let disk = health.disk_use().unwrap_or_default();
    for (name, help, value) in [
        ("store_bytes", "The store's file, without its write-ahead log.", disk.store_bytes),
        ("store_wal_bytes", "The store's write-ahead log.", disk.wal_bytes),
        ("disk_free_bytes", "Room left on the store's file system.", disk.free_bytes),
        ("disk_free_bytes_min", "Below this much room publishes are refused.", disk.free_bytes_min),
        ("no_space", "1 while publishes are refused for want of room.", health.no_space().is_some().into()),
        ("requests_waiting", "Requests not yet seen by the engine.", shell.requests_waiting),
        ("backlog_batches", "Batches not yet durable.", shell.backlog_batches),
        ("backlog_bytes", "Bytes of batches not yet durable.", shell.backlog_bytes),
        ("outbound_bytes", "Bytes waiting for WebSocket connections to read them.", shell.outbound_bytes),
        ("reads_waiting", "Reads waiting for a reader.", shell.reads_waiting),
        ("storage_failed", "1 when nothing is written any more.", health.storage_failed().is_some().into()),
        ("stopping", "1 while the server shuts down.", health.stopping().into()),
    ] {
        page.single("gauge", name, help, value);
    }
    let help =
        "How long the commit under way has taken by now, earlier attempts included; 0 when there is none.";
    page.head("gauge", "commit_age_seconds", help);
    page.labelled("commit_age_seconds", &[], health.commit_age().as_secs_f64());
    page.head("gauge", "uptime_seconds", "Time since the server started.");
    page.labelled("uptime_seconds", &[], shell.uptime_ms as f64 / 1e3);
    let micro = 1e-6;
    page.histogram("commit_seconds", "How long a commit took, its sync included.", &shell.sync, micro);
    page.histogram("commit_size_batches", "Batches merged into one commit.", &shell.batches_per_commit, 1.0);
    page.histogram("commit_size_events", "Events appended by one commit.", &shell.events_per_commit, 1.0);
}

pub(crate) fn write_edge(page: &mut Page, edge: &Edge) {
    page.head("counter", "refusals_total", "Requests and frames refused, by error code.");
    for (code, count) in edge.audit.refusals.counts() {
        page.labelled("refusals_total", &[("code", code.as_str())], count);
    }
    let help = "Connections closed for others' sake, or because they kept the server waiting, by reason.";
    page.head("counter", "connections_evicted_total", help);
    for (reason, count) in edge.evictions.counts() {
        page.labelled("connections_evicted_total", &[("reason", reason)], count);
    }
    page.single(
        "counter",
        "audit_events_total",
        "Records published to system.bus.audit.",
        edge.audit_log.written(),
    );
    let help = "Records of the audit that were lost: too many at once, or not published.";
    page.single("counter", "audit_dropped_total", help, edge.audit_log.dropped());
    let ServerSettings { broker, connections_max, .. } = &edge.settings;
    for (name, help, value) in [
        ("connections_max", "Most WebSocket connections there may be.", *connections_max as u64),
        ("backlog_bytes_max", "Where requests begin to wait for the disk.", broker.backlog_bytes_max as u64),
    ] {
        page.single("gauge", name, help, value);
    }
    let spans = edge.settings.tracer.as_ref().map(Tracer::view).unwrap_or_default();
    page.single("counter", "otlp_spans_total", "Spans that the collector of traces took.", spans.exported);
    let help = "Spans that were lost: too many at once, or the collector did not take them.";
    page.single("counter", "otlp_dropped_total", help, spans.dropped);
    write_latencies(page, &edge.latencies);
    process::write(page);
    page.head("gauge", "build_info", "Always 1; the version is in the label.");
    page.labelled("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
}

fn write_latencies(page: &mut Page, latencies: &Latencies) {
    let name = "publish_seconds";
    let help = "From the arrival of a publish, over WebSocket or HTTP, to its answer, by durability.";
    page.head("histogram", name, help);
    for (durability, view) in latencies.publish() {
        page.buckets(name, Some(("durability", durability.as_str())), &view, 1e-6);
    }
    let help = "From storing an event to sending it over a WebSocket, first deliveries only.";
    page.histogram("deliver_seconds", help, &latencies.deliver(), 1e-3);
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_model::TopicKey;

    #[test]
    fn topics_past_the_bound_are_summed_up() {
        let mut stats = Stats::default();
        for at in 0..5u64 {
            let key = TopicKey::parse(&format!("default/t{at}")).unwrap();
            stats.by_topic.insert(key, TopicCounters { published: at, delivered: 1 });
        }
        let mut page = Page::default();
        write_topics(&mut page, &stats, 3);
        let out = page.text();
        assert!(
            out.contains("millrace_topic_published_total{namespace=\"default\",topic=\"t2\"} 2\n"),
            "{out}"
        );
        assert!(
            out.contains("millrace_topic_published_total{namespace=\"(other)\",topic=\"(other)\"} 7\n"),
            "{out}"
        );
        assert!(!out.contains("t3"), "{out}");
    }
}
