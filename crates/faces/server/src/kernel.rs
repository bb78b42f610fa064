//! Connects the CQRS loop to the server: to the store, the bus and access control.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use millrace_broker::BrokerHandle;
use millrace_bus::{BusError, PublishBatch, Reply, Request};
use millrace_child::{ChildLimits, Children};
use millrace_kernel::{
    AuditEvent, AuditHook, CheckSender, CheckToken, Credentials, Feeds, HostRequest, KernelHandle,
    KernelParts, TokenError, ValueCache, bus as bus_capability, memory,
};
use millrace_model::{
    EventBody, JsonText, Namespace, NewEvent, Requester, Space, TRACE_TOPIC, TopicKey, TopicName, keys,
};
use millrace_router::TIMER_PREFIX;
use millrace_store::{KeyRange, Store, StoreError, each_row};
use millrace_wire::ErrorCode;
use rand::RngCore;
use tokio::sync::mpsc;

use crate::access::{Grant, NotAccepted, Refused, Scope, Tokens};
use crate::app::App;
use crate::edge::Edge;
use crate::observe::RequestParty;
use crate::server::ServeError;
use crate::settings::ServerSettings;
use crate::to_wire;

/// Records of the trace in one commit: the rest waits for the next commit.
const TRACE_RECORDS_PER_COMMIT_MAX: usize = 1000;
/// The part of a stop's grace that is left for the bus, or a quarter of the grace if that is less.
const BUS_GRACE_MS_MAX: u64 = 1000;

/// How much longer than its grace the loop may take, at most, to write its last answers and to end its actors.
const END_MS_MAX: u64 = 4000;

/// Starts the loop with its built-in capabilities.
pub(crate) async fn start(
    settings: &ServerSettings,
    store: &Arc<dyn Store>,
    bus: &BrokerHandle,
    tokens: &Arc<Tokens>,
    audit_target: &AuditTarget,
) -> Result<(KernelHandle, mpsc::Receiver<HostRequest>), ServeError> {
    let rows = bus.row_writer(keys::ROUTER);
    let (at, memory_rows, limits) = (store.clone(), rows.clone(), settings.memory.clone());
    let read = move || Ok::<_, StoreError>((timers(&*at)?, ValueCache::load(&*at, memory_rows, limits)?));
    let read = tokio::task::spawn_blocking(read).await;
    let (timers, values) = read.map_err(|_| ServeError::Fallen)?.map_err(ServeError::Store)?;
    let runtime = tokio::runtime::Handle::current();
    let feeds =
        Feeds::new(bus.clone(), runtime.clone(), settings.feeds.clone(), Some(audit_hook(audit_target)));
    let parts = KernelParts {
        settings: settings.kernel.clone(),
        nonce: rand::rng().next_u64(),
        clock: bus.clock().clone(),
        runtime,
        rows: Some(rows),
        timers,
        bus_feed: Some(feeds.bus_feed()),
        check_token: (!tokens.is_open()).then(|| check_token(tokens.clone())),
        check_sender: (!tokens.is_open()).then(|| check_sender(tokens.clone())),
        audit_hook: Some(audit_hook(audit_target)),
        records: settings.trace_store.then(|| keep_trace(bus.clone(), settings.trace_records_waiting_max)),
    };
    let built_in = vec![memory(values), bus_capability(feeds)];
    Ok(KernelHandle::start(parts, built_in).await?)
}

/// Starts the child processes of the configuration. Fails if one of them cannot be started.
pub(crate) async fn children(
    settings: &ServerSettings,
    kernel: &KernelHandle,
) -> Result<Children, ServeError> {
    let limits = ChildLimits {
        line_bytes_max: settings.kernel.line_bytes_max,
        answer_ms: settings.kernel.router.request_timeout_ms,
        ..settings.child.clone()
    };
    let mut children = Children::new(kernel.clone(), limits);
    children.become_these(settings.capabilities.clone()).await.map_err(ServeError::Capability)?;
    Ok(children)
}

/// Starts a task that writes trace records to the trace topic of their namespace, many in one commit. The task ends
/// with the loop.
fn keep_trace(bus: BrokerHandle, waiting_max: usize) -> mpsc::Sender<(Namespace, JsonText)> {
    let (records_in, mut records) = mpsc::channel(waiting_max.max(1));
    tokio::spawn(async move {
        let Ok(topic) = TopicName::new(TRACE_TOPIC) else { return };
        let mut taken: Vec<(Namespace, JsonText)> = Vec::new();
        while records.recv_many(&mut taken, TRACE_RECORDS_PER_COMMIT_MAX).await > 0 {
            let mut by_namespace: BTreeMap<Namespace, Vec<NewEvent>> = BTreeMap::new();
            for (namespace, payload) in taken.drain(..) {
                let event = NewEvent { id: None, body: Arc::new(EventBody::of(payload)) };
                by_namespace.entry(namespace).or_default().push(event);
            }
            for (namespace, events) in by_namespace {
                let topic = TopicKey::new(&namespace, &topic);
                match bus.call(Requester::Trusted, Request::Record(PublishBatch { topic, events })).await {
                    Ok(Reply::PublishedBatch { .. }) => {}
                    Ok(other) => {
                        tracing::warn!(answer = ?other, "records of the loop's trace could not be kept");
                    }
                    Err(_) => return,
                }
            }
        }
    });
    records_in
}

/// How much of a stop's grace the loop may use.
pub(crate) fn grace(grace_ms: u64) -> Duration {
    Duration::from_millis(grace_ms - BUS_GRACE_MS_MAX.min(grace_ms / 4))
}

/// How long the loop's end is waited for: a handler on its thread that never returns must not keep the process alive.
pub(crate) fn patience(grace_ms: u64) -> Duration {
    grace(grace_ms) + Duration::from_millis(END_MS_MAX)
}

fn timers(store: &dyn Store) -> Result<Vec<(String, Bytes)>, StoreError> {
    let mut found = Vec::new();
    // `ROUTER_ELAPSED` is the key of one row, the loop's elapsed time; no other key begins with it.
    for prefix in [TIMER_PREFIX, keys::ROUTER_ELAPSED] {
        each_row(store, Space::Kv, KeyRange::prefix(prefix), |row| found.push((row.key, row.value)))?;
    }
    Ok(found)
}

/// Finds the grant of a token. A token of the bus is valid for the loop if it has the scope `os`.
fn grant(tokens: &Tokens, token: &str) -> Result<Arc<Grant>, TokenError> {
    let grant = tokens.find(token).map_err(|not_accepted| match not_accepted {
        NotAccepted::Unknown => TokenError::Unknown,
        NotAccepted::Expired => TokenError::Expired,
    })?;
    if !grant.has(Scope::Os) {
        let agent = grant.principal.agent.to_string();
        return Err(TokenError::NoScope { agent, scope: Scope::Os.as_str() });
    }
    Ok(grant)
}

fn check_token(tokens: Arc<Tokens>) -> CheckToken {
    Arc::new(move |token| {
        let grant = grant(&tokens, token)?;
        let (by, rights) = (grant.principal.clone(), grant.rights.clone());
        Ok(Credentials { by, rights, valid: Arc::new(move || grant.ended().is_none()) })
    })
}

/// Decides whether a due timer may still send: a timer has the rights that its agent has when it is due, by any of the
/// agent's tokens that is valid then.
fn check_sender(tokens: Arc<Tokens>) -> CheckSender {
    Arc::new(move |by, message| tokens.stand_for(&by.agent, message))
}

impl Edge {
    pub(crate) fn os_grant(&self, token: &str) -> Result<Arc<Grant>, TokenError> {
        grant(&self.tokens, token)
    }
}

/// The [`App`], which keeps the audit. Set after the loop has started, because the app holds the loop, and before
/// anybody can connect.
pub(crate) type AuditTarget = Arc<OnceLock<Weak<App>>>;

/// Reports commands of the loop to the audit, like requests at the bus's own edges.
fn audit_hook(audit_target: &AuditTarget) -> AuditHook {
    let audit_target = audit_target.clone();
    Arc::new(move |seen| {
        if let Some(app) = audit_target.get().and_then(Weak::upgrade) {
            app.audit(seen);
        }
    })
}

impl App {
    fn audit(&self, seen: &AuditEvent<'_>) {
        match seen {
            AuditEvent::Refused { by, code, what, why } => {
                let code = if *code == 401 { ErrorCode::Unauthorized } else { ErrorCode::Forbidden };
                let agent = by.map(|by| by.agent.as_str());
                let (peer, namespace, topic, trace) = (None, None, None, None);
                self.edge.refused(&Refused { code, agent, peer, what, why, namespace, topic, trace });
            }
            AuditEvent::Bus { by, what, reply: Reply::Refused(error), trace } => {
                let error = error.why();
                let (namespace, topic) = match error {
                    BusError::Forbidden { topic, .. } | BusError::GroupForbidden { topic, .. } => {
                        (Some(topic.namespace()), Some(topic.topic()))
                    }
                    _ => (None, None),
                };
                let (code, agent) = (to_wire::code(error), by.map(|by| by.agent.as_str()));
                let (why, peer, trace) = (&*error.to_string(), None, *trace);
                self.edge.refused(&Refused { code, agent, peer, what, why, namespace, topic, trace });
            }
            AuditEvent::Bus { by, reply, trace, .. } => {
                let agent = by.map(|by| by.agent.as_str());
                self.done(reply, &RequestParty { agent, peer: None, trace: *trace });
            }
        }
    }
}
