//! `GET /metrics`: the Prometheus text format, written once per metric in one table.

use std::fmt::Write;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::{Reply, Request, Stats, TopicCounters};
use millrace_runtime::{Health, SYNC_BUCKETS_US, ShellView};

use crate::access::Caller;
use crate::app::SharedApp;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Stands for all topics past the bound on labels; no real topic can have this name.
const OTHER: &str = "(other)";

/// How long the engine may take to answer. When it does not, because a stuck disk holds it up, what the shell knows is
/// all the more wanted: it is answered alone.
const ENGINE_WAIT_MS: u64 = 1000;

pub(crate) async fn metrics(State(app): State<SharedApp>, caller: Caller) -> Response {
    let mut out = String::with_capacity(8 << 10);
    let asked =
        tokio::time::timeout(Duration::from_millis(ENGINE_WAIT_MS), app.ask(None, Request::Stats)).await;
    if let Ok(Ok(Reply::Stats(mut stats))) = asked {
        // The names of other tenants' topics are not for everybody who may look at the server.
        let namespaces = caller.grant.as_deref().map(|grant| &grant.namespaces);
        stats.by_topic.retain(|topic, _| namespaces.is_none_or(|rule| rule.allows(topic.namespace())));
        write_bus(&mut out, &stats);
        write_topics(&mut out, &stats, app.settings.topic_labels_max);
    }
    write_shell(&mut out, &app.runtime.metrics(), app.runtime.health());
    ([(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))], out).into_response()
}

fn write_bus(out: &mut String, stats: &Stats) {
    let counters = &stats.counters;
    for (name, help, value) in [
        ("events_published", "Events stored.", counters.published),
        ("events_duplicate", "Publishes answered from an earlier one with the same id.", counters.duplicates),
        ("events_delivered", "Events sent to members of groups.", counters.delivered),
        ("events_acked", "Events acknowledged.", counters.acked),
        ("events_nacked", "Events refused by their receiver.", counters.nacked),
        ("events_redelivered", "Deliveries after the first.", counters.redelivered),
        ("events_timed_out", "Deliveries not acknowledged in time.", counters.timed_out),
        ("events_dead_lettered", "Events given up on.", counters.dead_lettered),
        ("events_skipped", "Events removed by retention before a group saw them.", counters.skipped),
        ("events_filtered", "Events turned away by a group's filter.", counters.filtered),
    ] {
        single(out, "counter", &format!("{name}_total"), help, value);
    }
    for (name, help, value) in [
        ("events_inflight", "Events delivered and not acknowledged.", stats.inflight),
        ("events_lag", "Events stored and not committed, over all groups.", stats.lag),
        ("connections", "WebSocket connections.", stats.connections),
        ("subscriptions", "Memberships in groups.", stats.subscriptions),
        ("topics", "Topics.", stats.topics),
        ("groups", "Groups.", stats.groups),
    ] {
        single(out, "gauge", name, help, value);
    }
}

/// The first topics by name get lines of their own. The total of a counter never falls, whoever it is filed under.
fn write_topics(out: &mut String, stats: &Stats, labels_max: usize) {
    let mut other = TopicCounters::default();
    for counters in stats.by_topic.values().skip(labels_max) {
        other.published += counters.published;
        other.delivered += counters.delivered;
    }
    let has_other = stats.by_topic.len() > labels_max;
    let mut family = |name: &str, help: &str, value: fn(&TopicCounters) -> u64| {
        head(out, "counter", name, help);
        for (topic, counters) in stats.by_topic.iter().take(labels_max) {
            let (namespace, topic) = (topic.namespace(), topic.topic());
            line(
                out,
                format_args!("{name}{{namespace=\"{namespace}\",topic=\"{topic}\"}} {}", value(counters)),
            );
        }
        if has_other {
            line(out, format_args!("{name}{{namespace=\"{OTHER}\",topic=\"{OTHER}\"}} {}", value(&other)));
        }
    };
    family("topic_published_total", "Events stored, by topic.", |counters| counters.published);
    family("topic_delivered_total", "Events sent to members of groups, by topic.", |counters| {
        counters.delivered
    });
}

fn write_shell(out: &mut String, shell: &ShellView, health: &Health) {
    for (name, help, value) in [
        ("commits", "Commits, each with one sync.", shell.commits),
        ("commit_batches", "Batches merged into commits.", shell.commit_batches),
        ("commit_events", "Events appended by commits.", shell.commit_events),
        ("maintained_rows", "Rows of housekeeping.", shell.maintained_rows),
        ("owner_turns", "Rounds of the owner loop.", shell.turns),
        ("reads", "Reads the engine asked for.", shell.reads),
        ("reads_failed", "Reads that failed and were tried again.", shell.reads_failed),
        ("events_damaged", "Damaged events met while reading.", shell.damaged),
        ("connections_dropped_slow", "Connections dropped because they did not read.", shell.dropped_slow),
    ] {
        single(out, "counter", &format!("{name}_total"), help, value);
    }
    for (name, help, value) in [
        ("requests_waiting", "Requests not yet seen by the engine.", shell.requests_waiting),
        ("backlog_batches", "Batches not yet durable.", shell.backlog_batches),
        ("backlog_bytes", "Bytes of batches not yet durable.", shell.backlog_bytes),
        ("reads_waiting", "Reads waiting for a reader.", shell.reads_waiting),
        ("storage_failed", "1 when nothing is written any more.", health.storage_failed().is_some().into()),
        ("stopping", "1 while the server shuts down.", health.stopping().into()),
    ] {
        single(out, "gauge", name, help, value);
    }
    head(out, "gauge", "uptime_seconds", "Time since the server started.");
    line(out, format_args!("uptime_seconds {}", shell.uptime_ms as f64 / 1e3));
    write_sync(out, shell);
}

fn write_sync(out: &mut String, shell: &ShellView) {
    head(out, "histogram", "commit_seconds", "How long a commit took, its sync included.");
    let mut count = 0;
    for (bound, in_bucket) in SYNC_BUCKETS_US.iter().zip(shell.sync.counts) {
        count += in_bucket;
        line(out, format_args!("commit_seconds_bucket{{le=\"{}\"}} {count}", *bound as f64 / 1e6));
    }
    let total: u64 = shell.sync.counts.iter().sum();
    line(out, format_args!("commit_seconds_bucket{{le=\"+Inf\"}} {total}"));
    line(out, format_args!("commit_seconds_sum {}", shell.sync.sum_us as f64 / 1e6));
    line(out, format_args!("commit_seconds_count {total}"));
}

fn single(out: &mut String, kind: &str, name: &str, help: &str, value: u64) {
    head(out, kind, name, help);
    line(out, format_args!("{name} {value}"));
}

fn head(out: &mut String, kind: &str, name: &str, help: &str) {
    // Writing into a `String` cannot fail.
    let _ = write!(out, "# HELP millrace_{name} {help}\n# TYPE millrace_{name} {kind}\n");
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "millrace_{text}");
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
        let mut out = String::new();
        write_topics(&mut out, &stats, 3);
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

    #[test]
    fn the_histogram_adds_up() {
        let mut shell = ShellView::default();
        (shell.sync.counts[0], shell.sync.counts[2], shell.sync.counts[13]) = (1, 2, 4);
        let mut out = String::new();
        write_sync(&mut out, &shell);
        for line in
            ["_bucket{le=\"0.0001\"} 1", "_bucket{le=\"0.0005\"} 3", "_bucket{le=\"+Inf\"} 7", "_count 7"]
        {
            assert!(out.contains(&format!("millrace_commit_seconds{line}\n")), "{out}");
        }
    }
}
