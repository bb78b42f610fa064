//! `/connections`: who is connected, and how an administrator closes a connection.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_bus::{ConnectionView, Reply, Request};
use millrace_kernel::SocketConnection;
use millrace_model::{Namespace, Requester};
use millrace_wire::ErrorCode;
use millrace_wire::http::{AuditDoc, ConnectionDoc, ConnectionList};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::connections::{Backlog, ConnectionFacts, ConnectionId, Door};
use crate::http::document;
use crate::observe::{AuditKind, HttpRequester};
use crate::params::{AtConnection, Params};
use crate::refusal::Refusal;

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let list_max = app.edge.settings.list_max as u64;
    let limit = params.number("limit", 1..=list_max)?.unwrap_or(list_max) as usize;
    let after = params.text("after").map(connection_id).transpose()?;
    let only = params.text("namespace").map(|_| params.namespace()).transpose()?;
    let views = match app.request(Requester::Trusted, Request::InspectConnections).await? {
        Reply::ConnectionsInspected(views) => views,
        other => return Err(Refusal::unexpected(&other)),
    };
    let views: BTreeMap<u64, ConnectionView> = views.into_iter().map(|view| (view.conn.0, view)).collect();
    let of_edges = app.edge.connections.all().into_iter();
    let of_edges = of_edges.filter(|(_, facts)| may_see(&caller, facts.namespace.as_ref()));
    let mut found: BTreeMap<ConnectionId, ConnectionDoc> =
        of_edges.map(|(id, facts)| (id, of_edge(id, facts, &views))).collect();
    let of_socket = app.ask_loop(app.kernel.socket_connections()).await?;
    for connection in of_socket {
        let id = ConnectionId { door: Door::Socket, number: connection.number };
        found.insert(id, on_socket(id, connection));
    }
    let mut wanted = found.into_iter().filter(|(id, doc)| {
        let here = only.as_ref().is_none_or(|only| doc.namespace.as_deref() == Some(only.as_str()));
        here && after.is_none_or(|after| *id > after)
    });
    let connections: Vec<ConnectionDoc> = wanted.by_ref().take(limit).map(|(_, doc)| doc).collect();
    let next = wanted.next().and_then(|_| connections.last().map(|last| last.id.clone()));
    Ok(document(StatusCode::OK, &ConnectionList { connections, next }))
}

/// Connections of other namespaces are hidden from an administrator of some. Those of the loop belong to none.
fn may_see(caller: &Caller, namespace: Option<&Namespace>) -> bool {
    let rule = caller.grant.as_deref().map(|grant| &grant.namespaces);
    match (rule, namespace) {
        (Some(rule), Some(namespace)) => rule.allows(namespace.as_str()),
        _ => true,
    }
}

fn of_edge(id: ConnectionId, facts: ConnectionFacts, views: &BTreeMap<u64, ConnectionView>) -> ConnectionDoc {
    let view = views.get(&id.number).filter(|_| id.door == Door::Bus);
    let (inflight, unread_bytes, congested) = match &facts.backlog {
        Backlog::Bus(backlog) => {
            (view.map_or(0, |view| view.inflight), backlog.unread_bytes(), backlog.is_congested())
        }
        Backlog::Loop(backlog) => {
            (backlog.unanswered() as u64, backlog.unread_bytes(), backlog.is_congested())
        }
    };
    ConnectionDoc {
        id: id.to_string(),
        door: id.door.as_str().to_owned(),
        agent: facts.agent,
        peer: Some(facts.peer),
        namespace: facts.namespace.map(|namespace| namespace.to_string()),
        since: facts.since,
        subscriptions: view.map_or(0, |view| view.subscriptions as u64),
        inflight,
        unread_bytes: unread_bytes as u64,
        congested,
    }
}

fn on_socket(id: ConnectionId, connection: SocketConnection) -> ConnectionDoc {
    ConnectionDoc {
        id: id.to_string(),
        door: id.door.as_str().to_owned(),
        agent: connection.agent.map(|agent| agent.to_string()),
        peer: None,
        namespace: None,
        since: connection.since,
        subscriptions: 0,
        inflight: connection.unanswered as u64,
        unread_bytes: connection.unread_bytes as u64,
        congested: connection.is_congested,
    }
}

/// Closes a connection. Its client may come back: a token is taken away in the configuration.
pub(crate) async fn disconnect(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtConnection,
) -> Result<Response, Refusal> {
    let AtConnection(id) = at;
    let closed = match id.door {
        Door::Socket => app.ask_loop(app.kernel.disconnect(id.number)).await?,
        Door::Bus | Door::Loop => {
            let facts = app.edge.connections.get(id);
            let seen = facts.is_some_and(|facts| may_see(&caller, facts.namespace.as_ref()));
            seen && app.edge.connections.send_away(id)
        }
    };
    if !closed {
        let detail = format!("there is no connection {id}: GET /connections lists them");
        return Err(Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::NOT_FOUND));
    }
    record(&app, &caller, id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn record(app: &App, caller: &Caller, id: ConnectionId) {
    let trace = HttpRequester::current().and_then(|requester| requester.trace.clone());
    let doc = AuditDoc {
        kind: "disconnected".to_owned(),
        agent: caller.agent().map(str::to_owned),
        peer: Some(caller.peer.addr.to_string()),
        what: Some(id.to_string()),
        trace_id: trace.map(|trace| trace.as_str().to_owned()),
        ..AuditDoc::default()
    };
    app.edge.audit_log.put(AuditKind::Admin, doc);
}

pub(crate) fn connection_id(text: &str) -> Result<ConnectionId, Refusal> {
    text.parse().map_err(|()| {
        let detail = format!("{text:.40?} is no connection: they are named ws-N, os-N and socket-N");
        Refusal::new(ErrorCode::BadFrame, detail)
    })
}
