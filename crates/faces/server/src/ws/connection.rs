//! A connection of the bus, from its first frame to its close handshake (`close.rs`).

use std::sync::{Arc, OnceLock};

use futures_util::StreamExt;
use millrace_broker::{BusConnection, Item};
use millrace_bus::{BusError, Reply};
use millrace_model::{Actor, Namespace, TraceId};
use millrace_wire::ErrorCode;
use tokio::sync::mpsc;

use crate::access::{Caller, Grant, Refused};
use crate::app::App;
use crate::connections::{Backlog, ConnectionFacts, ConnectionId, Door, ListedConnection};
use crate::fairness::{FrameMeter, Seat};
use crate::latencies::LeftAt;
use crate::moved::Moved;
use crate::observe::RequestParty;
use crate::to_wire;
use crate::to_wire::UnansweredRequest;
use crate::ws::close::{ABOVE_SHARE, INCOMPLETE_FRAME, WsEnd, close_handshake};
use crate::ws::grant::CurrentGrant;
use crate::ws::keepalive::Keepalive;
use crate::ws::unanswered::Unanswered;
use crate::ws::upgrade::Socket;
use crate::ws::{read, write};

/// Frames that the reader answers itself and that wait to be written: at this many, the reader waits.
const OWN_ANSWERS_MAX: usize = 64;

/// State that both directions of a connection share.
pub(super) struct Connection<'a> {
    pub(super) app: &'a App,
    pub(super) bus: BusConnection,
    pub(super) unanswered: Unanswered,
    pub(super) keepalive: Keepalive,
    pub(super) frames: Arc<FrameMeter>,
    pub(super) namespace: Namespace,
    /// Whether deliveries carry the digest of their payload, as the upgrade asked.
    pub(super) payload_sha256: bool,
    /// The caller as the upgrade identified it.
    pub(super) caller: Caller,
    /// The present grant: an AUTH frame may have replaced that of `caller`.
    grant: CurrentGrant,
    /// The agent, if an AUTH frame named it.
    pub(super) agent: OnceLock<Actor>,
    listed: ListedConnection,
}

impl Connection<'_> {
    /// Takes over the grant of a token that an AUTH frame brought.
    pub(super) fn enter(&self, grant: Arc<Grant>) {
        let _ = self.agent.set(grant.principal.agent.clone());
        self.listed.set_agent(grant.principal.agent.as_str());
        self.grant.set(grant);
    }

    pub(super) fn agent(&self) -> Option<&str> {
        self.agent.get().map(Actor::as_str).or_else(|| self.caller.agent())
    }

    /// Reports what leaves the engine to log, audit and metrics.
    pub(super) fn note(&self, item: &Item, request: Option<&UnansweredRequest>, left: LeftAt) {
        let trace = request.and_then(|request| request.trace.as_ref());
        if let Item::Reply { reply, .. } = item
            && let Some(request) = request
        {
            self.app.answered(reply, request.traced.as_deref(), request.arrived, left);
        }
        match item {
            Item::Reply { reply: Reply::Refused(error), .. } | Item::Notice { error, .. } => {
                let what = request.map_or("MESSAGE", |request| request.op);
                let error = error.why();
                let code = self.app.moved(error).map_or_else(|| to_wire::code(error), |_| ErrorCode::Moved);
                self.refused(code, what, &error.to_string(), about(error), trace);
            }
            Item::Reply { reply, .. } => {
                let peer = Some(self.caller.peer.addr);
                self.app.done(reply, &RequestParty { agent: self.agent(), peer, trace });
            }
            Item::Delivery { event, attempts, .. } => {
                self.app.edge.latencies.delivered(event, *attempts, left);
            }
        }
    }

    pub(super) fn refused(
        &self,
        code: ErrorCode,
        what: &str,
        why: &str,
        topic: Option<&str>,
        trace: Option<&TraceId>,
    ) {
        let (agent, peer) = (self.agent(), Some(self.caller.peer.addr));
        let namespace = Some(self.namespace.as_str());
        self.app.edge.refused(&Refused { code, agent, peer, what: &what, why, namespace, topic, trace });
    }
}

/// The topic that a refusal of the engine is about.
fn about(error: &BusError) -> Option<&str> {
    match error {
        BusError::Forbidden { topic, .. } | BusError::GroupForbidden { topic, .. } => Some(topic.topic()),
        _ => None,
    }
}

/// The parameters in the address of an upgrade.
#[derive(Clone, Debug)]
pub(super) struct UpgradeParams {
    pub(super) namespace: Namespace,
    pub(super) payload_sha256: bool,
}

/// Runs the connection. Both directions run in one task, so neither needs a lock against the other, and the first to
/// end ends both.
pub(crate) async fn run(app: &App, socket: Socket, asked: UpgradeParams, caller: Caller, seat: &Seat) {
    let UpgradeParams { namespace, payload_sha256 } = asked;
    let Ok(bus) = app.broker.open(namespace.clone()) else { return };
    let facts = ConnectionFacts {
        agent: caller.agent().map(str::to_owned),
        peer: caller.peer.addr.to_string(),
        since: app.edge.clock.now().wall,
        namespace: Some(namespace.clone()),
        backlog: Backlog::Bus(bus.backlog()),
    };
    let id = ConnectionId { door: Door::Bus, number: bus.conn().0 };
    let listed = app.edge.connections.list(id, facts);
    let connection = Connection {
        app,
        bus,
        unanswered: Unanswered::new(app.edge.settings.unanswered_max.max(1)),
        keepalive: Keepalive::default(),
        frames: socket.get_ref().meter().clone(),
        grant: CurrentGrant::new(caller.grant.clone()),
        agent: OnceLock::new(),
        listed,
        namespace,
        payload_sha256,
        caller,
    };
    let (mut sink, mut stream) = socket.split();
    let (answers, own_answers) = mpsc::channel(OWN_ANSWERS_MAX);
    let task = async {
        tokio::select! {
            // The reader comes before the writer: the engine may answer a request on the spot, and the answer is then
            // written in the same poll. In another order `drive` would wake the task again.
            biased;
            () = app.edge.doubt.begun() => WsEnd::Moved(Moved::to(None)),
            end = read::run(&connection, &mut stream, answers) => end,
            end = write::run(&connection, &mut sink, own_answers) => end,
            end = connection.grant.ended(&app.edge) => end,
            () = seat.sent_away() => WsEnd::Crowded(ABOVE_SHARE),
            () = connection.frames.sent_away() => WsEnd::Crowded(INCOMPLETE_FRAME),
            () = connection.listed.sent_away() => WsEnd::Disconnected,
        }
    };
    let end = connection.bus.drive(task).await;
    let conn = connection.bus.conn().0;
    match &end {
        WsEnd::Dropped(why) => {
            tracing::warn!(conn, why, "a connection was dropped");
        }
        _ => tracing::debug!(conn, ?end, "a connection ended"),
    }
    if end.is_eviction() {
        connection.bus.evict();
    }
    let frame = end.frame();
    // Before the close handshake: the connection's leases must not wait for a peer that takes its time.
    drop(connection);
    close_handshake(end, frame, sink, stream, app.edge.closing.clone()).await;
}
