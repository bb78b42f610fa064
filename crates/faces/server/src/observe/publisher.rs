//! The background tasks behind the server's own topics, and the publishing of `system.metrics`.

use std::sync::Arc;
use std::time::Duration;

use millrace_broker::{BrokerHandle, Ended};
use millrace_bus::{PublishBatch, Reply, Request, Stats};
use millrace_model::{
    EventBody, JsonText, METRICS_TOPIC, Namespace, NewEvent, Requester, SYSTEM_TOPICS, TopicKey, TopicName,
};
use millrace_wire::http::MetricsDoc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::app::{App, SharedApp};
use crate::observe::audit_log::AuditWriter;
use crate::observe::notes;
use crate::to_wire;

/// Creates the topics that exist from the start. A store that cannot write fails here for the first time.
pub(crate) async fn make_topics(handle: &BrokerHandle) {
    let make = |name: &str| {
        let topic = TopicName::new(name).map(|name| TopicKey::new(&Namespace::default(), &name));
        let handle = handle.clone();
        async move {
            let Ok(topic) = topic else { return };
            match handle
                .call(Requester::Trusted, Request::Record(PublishBatch { topic, events: Vec::new() }))
                .await
            {
                Ok(Reply::Topic { .. }) | Err(Ended) => {}
                Ok(other) => tracing::warn!(answer = ?other, "a topic of the server could not be made"),
            }
        }
    };
    // All at once, so that they share a commit.
    futures_util::future::join_all(SYSTEM_TOPICS.map(make)).await;
}

/// Starts the background tasks. All of them end with the broker.
pub(crate) fn start(app: &SharedApp, audit_writer: AuditWriter) {
    if let Some(receiver) = app.broker.take_notes() {
        tokio::spawn(notes::run(app.clone(), receiver));
    }
    if !app.edge.settings.audit.is_off() {
        tokio::spawn(audit_writer.run(app.broker.clone()));
    }
    if app.edge.settings.metrics_interval_ms > 0 {
        tokio::spawn(publish_metrics(app.clone()));
    }
}

async fn publish_metrics(app: SharedApp) {
    let Ok(topic) = TopicKey::parse(&format!("default/{METRICS_TOPIC}")) else { return };
    let period = Duration::from_millis(app.edge.settings.metrics_interval_ms);
    let mut ticks = interval_at(Instant::now() + period, period);
    // After a pause, one event tells as much as all that were missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        // At once when the broker ends: the task holds the store, and a shared store is opened again by the same process.
        tokio::select! {
            _ = ticks.tick() => {}
            () = app.broker.ended() => return,
        }
        if app.broker.health().stopping() {
            return;
        }
        let failed = match publish_once(&app, &topic).await {
            Err(Ended) => return,
            Ok(failed) => failed,
        };
        // Logs the first failure only, not one per period.
        if let Some(why) = failed.as_ref().filter(|_| !failing) {
            tracing::warn!(why, "metrics could not be published");
        }
        failing = failed.is_some();
    }
}

/// Publishes the metrics once. Returns the reason if that failed.
async fn publish_once(app: &App, topic: &TopicKey) -> Result<Option<String>, Ended> {
    let stats = match app.broker.call(Requester::Trusted, Request::Stats).await? {
        Reply::Stats(stats) => stats,
        other => return Ok(Some(format!("{other:?}"))),
    };
    let payload = match JsonText::from_value(&document(app, &stats)) {
        Ok(payload) => payload,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let events = vec![NewEvent { id: None, body: Arc::new(EventBody::of(payload)) }];
    match app
        .broker
        .call(Requester::Trusted, Request::Record(PublishBatch { topic: topic.clone(), events }))
        .await?
    {
        Reply::PublishedBatch { .. } => Ok(None),
        Reply::Refused(error) => Ok(Some(error.to_string())),
        other => Ok(Some(format!("{other:?}"))),
    }
}

fn document(app: &App, stats: &Stats) -> MetricsDoc {
    let bounds = to_wire::Labels {
        topics: app.edge.settings.topic_labels_max,
        groups: app.edge.settings.group_labels_max,
    };
    let refusals = app.edge.audit.refusals.counts().filter(|(_, count)| *count > 0);
    MetricsDoc {
        refusals: refusals.map(|(code, count)| (code.as_str().to_owned(), count)).collect(),
        ..to_wire::metrics(stats, &app.broker.metrics(), &Namespace::default(), bounds)
    }
}
