//! Publishes what applications have put into the outbox of their database, each event once.
//!
//! The record that holds an event deletes its row in the same operation (`JournalStore::expect_from_outbox`). A row
//! that is still there after its publish was answered belongs to an event that the store had already: the row is
//! deleted. A row that can never be published is moved to the table of refused rows, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millrace_broker::BrokerHandle;
use millrace_bus::{ErrorCode, Publish, Reply, Request};
use millrace_model::{
    EVENT_BYTES_MAX, EventBody, EventId, Headers, JsonText, Namespace, NewEvent, Requester, TopicKey,
    TopicName,
};
use millrace_stores::{JournalStore, OutboxId, OutboxRefusal, OutboxRow};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::commands::serve::engine_thread::EngineThread;

/// How often the outbox is looked at while it is empty.
const LOOK: Duration = Duration::from_millis(50);
/// The pause after an engine that did not answer, or a server that could not publish.
const PAUSE: Duration = Duration::from_secs(1);
/// Rows that are published together.
const ROWS_MAX: usize = 256;
/// Pages of rows after which the relay begins with the oldest row again: rows may appear before others that were seen.
const PAGES_MAX: usize = 64;

/// Ends with the server that leads.
#[derive(Debug)]
pub(super) struct OutboxRelay(JoinHandle<()>);

impl OutboxRelay {
    pub(super) fn stop(self) {
        self.0.abort();
    }
}

/// `event_bytes_max` is the bound that publishes by other ways have.
pub(super) fn start(store: Arc<JournalStore>, broker: BrokerHandle, event_bytes_max: usize) -> OutboxRelay {
    OutboxRelay(tokio::spawn(run(store, broker, event_bytes_max.min(EVENT_BYTES_MAX))))
}

async fn run(store: Arc<JournalStore>, broker: BrokerHandle, event_bytes_max: usize) {
    let engine = loop {
        match EngineThread::start("millrace-outbox") {
            Ok(engine) => break engine,
            Err(error) => tracing::error!("the outbox waits, because no thread could be started: {error}"),
        }
        sleep(PAUSE).await;
    };
    let outbox = Outbox { store, engine };
    // Rows whose publish was answered in the last sweep.
    let mut answered: BTreeSet<OutboxId> = BTreeSet::new();
    loop {
        let Some(sweep) = outbox.sweep(&broker, event_bytes_max, &answered).await else { return };
        answered = sweep.answered;
        if let Some((topic, error)) = &sweep.waits {
            tracing::warn!(rows = sweep.waiting, %topic, "events of the outbox wait, the first one because: {error}");
        }
        if sweep.waiting > 0 || sweep.is_cut_short {
            sleep(PAUSE).await;
        } else if sweep.is_empty {
            sleep(LOOK).await;
        }
    }
}

/// The outbox of the engine, and the thread on which it is asked.
struct Outbox {
    store: Arc<JournalStore>,
    engine: EngineThread,
}

impl Outbox {
    /// Goes once through the outbox, page by page: rows that have to wait hold up none behind them. `None` when the server
    /// ends.
    async fn sweep(
        &self,
        broker: &BrokerHandle,
        event_bytes_max: usize,
        answered: &BTreeSet<OutboxId>,
    ) -> Option<Sweep> {
        let mut sweep = Sweep { is_empty: true, ..Sweep::default() };
        let mut after = None;
        for _ in 0..PAGES_MAX {
            let reading = self.store.clone();
            let rows = match self.engine.call(move || reading.outbox(after, ROWS_MAX)).await? {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!("the outbox could not be read: {error}");
                    sweep.is_cut_short = true;
                    break;
                }
            };
            let Some(last) = rows.last().map(|row| row.id) else { break };
            after = Some(last);
            sweep.is_empty = false;
            let (stored, waiting): (Vec<OutboxRow>, Vec<OutboxRow>) =
                rows.into_iter().partition(|row| answered.contains(&row.id));
            if !stored.is_empty() {
                self.delete(stored.iter().map(|row| row.id).collect()).await;
            }
            let refused = publish(&self.store, broker, waiting, event_bytes_max, &mut sweep).await;
            self.refuse(refused).await;
        }
        Some(sweep)
    }

    async fn delete(&self, ids: Vec<OutboxId>) {
        let (store, rows) = (self.store.clone(), ids.len());
        match self.engine.call(move || store.delete_from_outbox(&ids)).await {
            Some(Ok(())) => tracing::info!(rows, "events of the outbox were stored before under the same id"),
            Some(Err(error)) => tracing::warn!(rows, "rows of the outbox could not be deleted: {error}"),
            None => {}
        }
    }

    async fn refuse(&self, refused: Vec<OutboxRefusal>) {
        if refused.is_empty() {
            return;
        }
        for OutboxRefusal { id, reason } in &refused {
            tracing::error!(row = id.0, "an event of the outbox cannot be published: {reason}");
        }
        let store = self.store.clone();
        if let Some(Err(error)) = self.engine.call(move || store.refuse_from_outbox(&refused)).await {
            tracing::warn!(
                "refused rows of the outbox could not be moved, the next round tries again: {error}"
            );
        }
    }
}

/// The result of going once through the outbox.
#[derive(Default)]
struct Sweep {
    answered: BTreeSet<OutboxId>,
    /// Rows that could not be published now, and why the first of them.
    waiting: usize,
    waits: Option<(TopicKey, String)>,
    is_empty: bool,
    is_cut_short: bool,
}

/// Publishes rows in their order, all under way at once. Returns those that can never be published.
async fn publish(
    store: &Arc<JournalStore>,
    broker: &BrokerHandle,
    rows: Vec<OutboxRow>,
    event_bytes_max: usize,
    sweep: &mut Sweep,
) -> Vec<OutboxRefusal> {
    let mut refused = Vec::new();
    let mut calls = BTreeMap::new();
    for row in rows {
        let id = row.id;
        let (topic, event_id, event) = match event_of(row, event_bytes_max) {
            Ok(parsed) => parsed,
            Err(reason) => {
                refused.push(OutboxRefusal { id, reason });
                continue;
            }
        };
        store.expect_from_outbox(topic.clone(), event_id.clone(), id);
        let request = Request::Publish(Publish { topic: topic.clone(), event, deliver_at: None });
        match broker.hand_over(Requester::Trusted, request).await {
            Ok(call) => {
                calls.insert(id, (topic, event_id, call));
            }
            Err(_) => sweep.is_cut_short = true,
        }
    }
    for (id, (topic, event_id, call)) in calls {
        let reply = call.reply().await;
        store.forget_from_outbox(&topic, &event_id);
        match reply {
            Ok(Reply::Published { .. }) => {
                sweep.answered.insert(id);
            }
            Ok(Reply::Refused(error)) if is_for_good(error.code()) => {
                refused.push(OutboxRefusal { id, reason: error.to_string() });
            }
            Ok(Reply::Refused(error)) => {
                sweep.waiting += 1;
                sweep.waits.get_or_insert_with(|| (topic, error.to_string()));
            }
            _ => sweep.is_cut_short = true,
        }
    }
    refused
}

/// Returns whether publishing the same event again would be refused again.
fn is_for_good(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::BadTopic
            | ErrorCode::BadFrame
            | ErrorCode::Forbidden
            | ErrorCode::SchemaMismatch
            | ErrorCode::TooLarge
    )
}

/// Returns the event of a row. A topic without a namespace is in the default one.
fn event_of(row: OutboxRow, event_bytes_max: usize) -> Result<(TopicKey, EventId, NewEvent), String> {
    let topic = match row.topic.contains('/') {
        true => TopicKey::parse(&row.topic),
        false => TopicName::new(&row.topic).map(|name| TopicKey::new(&Namespace::default(), &name)),
    };
    let topic = topic.map_err(|error| format!("topic: {error}"))?;
    let id = EventId::parse(&row.event_id).map_err(|error| format!("event_id: {error}"))?;
    let payload = JsonText::parse(&row.payload).map_err(|error| format!("payload: {error}"))?;
    let headers = match row.headers.as_deref() {
        None | Some("null") => None,
        Some(text) => {
            let map: BTreeMap<String, String> = serde_json::from_str(text)
                .map_err(|error| format!("headers: not an object of strings: {error}"))?;
            (!map.is_empty()).then(|| Headers::from_map(&map))
        }
    };
    let key = row.key.map(Into::into);
    let body = EventBody { key, headers, ..EventBody::of(payload) };
    if body.bytes() > event_bytes_max {
        return Err(format!("the event has {} bytes, {event_bytes_max} are allowed", body.bytes()));
    }
    Ok((topic, id.clone(), NewEvent { id: Some(id), body: Arc::new(body) }))
}
