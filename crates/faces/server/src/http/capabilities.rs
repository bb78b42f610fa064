//! `GET /capabilities`: who answers the messages of the CQRS loop, and how each of them is doing.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_kernel::{CapabilityState, CapabilityView};
use millrace_model::{OsType, Timestamp};
use millrace_wire::http::{CapabilityDoc, CapabilityList, FedTopicDoc, HandledDoc};

use crate::access::{Caller, Scope};
use crate::app::SharedApp;
use crate::http::document;
use crate::refusal::Refusal;

pub(crate) async fn list(State(app): State<SharedApp>, caller: Caller) -> Result<Response, Refusal> {
    let found = app.ask_loop(app.kernel.capabilities()).await?;
    let uptime_ms = app.broker.metrics().uptime_ms;
    let started = Timestamp(app.broker.clock().now().wall.0.saturating_sub(uptime_ms));
    let mut capabilities: Vec<CapabilityDoc> = found.into_iter().map(|view| doc(view, started)).collect();
    // The last words of a process may quote a message.
    if caller.grant.as_deref().is_some_and(|grant| !grant.has(Scope::Os)) {
        capabilities.iter_mut().for_each(|one| one.reason = None);
    }
    capabilities.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(document(StatusCode::OK, &CapabilityList { capabilities }))
}

fn doc(view: CapabilityView, started: Timestamp) -> CapabilityDoc {
    let CapabilityView { origin, since, restarts, process, state } = view;
    let CapabilityState { manifest, unhealthy, is_leaving, in_mailbox, events_waiting, asked, owes } = state;
    let health = match (&unhealthy, is_leaving) {
        (Some(_), _) => "unhealthy",
        (None, true) => "leaving",
        (None, false) => "healthy",
    };
    let handles = manifest.inbound.iter().map(|branch| HandledDoc {
        kind: branch.kind.as_str().to_owned(),
        ty: branch.ty.to_string(),
        description: branch.description.clone(),
        input: branch.data.document().clone(),
        output: branch.output.document().clone(),
    });
    let topics = manifest
        .bus
        .iter()
        .map(|fed| FedTopicDoc { topic: fed.topic.to_string(), group: fed.group.to_string() });
    CapabilityDoc {
        name: manifest.name.to_string(),
        description: manifest.description.clone(),
        kind: origin.as_str().to_owned(),
        health: health.to_owned(),
        reason: unhealthy,
        restarts,
        since: since.unwrap_or(started),
        pid: process,
        mailbox: (in_mailbox + events_waiting) as u64,
        asked: asked as u64,
        owes: owes as u64,
        handles: handles.collect(),
        subscribes: manifest.subscribes.iter().map(OsType::to_string).collect(),
        topics: topics.collect(),
    }
}
