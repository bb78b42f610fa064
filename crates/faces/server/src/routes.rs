//! The routes of the HTTP interface.

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, post};
use millrace_wire::ErrorCode;

use crate::app::SharedApp;
use crate::edge::SharedEdge;
use crate::http::{
    capabilities, chosen_letters, connections, console, dead_letters, event_story, events, group_page,
    groups, history, jobs, metrics, openapi, os_messages, schemas, server_stats, settings, status, tail,
    topics, whoami,
};
use crate::refusal::Refusal;
use crate::{access, drain_body, origin, position, ws};

pub(crate) fn router(app: SharedApp) -> Router {
    let routes = Router::new()
        .route("/", get(ws::root))
        .route("/ws", get(ws::upgrade))
        .route("/os", get(ws::os::upgrade))
        .route("/topics", get(topics::list).post(topics::create))
        .route("/topics/{topic}", get(topics::show).patch(topics::patch).delete(topics::delete))
        .route("/topics/{topic}/offsets", get(topics::offsets))
        .route("/topics/{topic}/schemas", get(schemas::list))
        .route("/topics/{topic}/events", get(events::read).post(events::publish))
        .route("/topics/{topic}/groups", get(groups::list))
        .route("/topics/{topic}/tail", get(tail::tail))
        .route("/topics/{topic}/groups/{group}", get(group_page::show).delete(groups::delete))
        .route("/topics/{topic}/groups/{group}/inflight", get(group_page::inflight))
        .route("/topics/{topic}/groups/{group}/pause", post(groups::pause))
        .route("/topics/{topic}/groups/{group}/resume", post(groups::resume))
        .route("/topics/{topic}/groups/{group}/seek", post(groups::seek))
        .route("/events/{id}", get(event_story::show))
        .route("/dead-letters", get(dead_letters::list))
        .route("/dead-letters/{topic}/replay", post(dead_letters::replay))
        .route("/dead-letters/{topic}/summary", get(chosen_letters::summary))
        .route("/dead-letters/{topic}/delete", post(chosen_letters::delete))
        .route("/jobs", get(jobs::list).post(jobs::create))
        .route("/jobs/{job}", get(jobs::show).delete(jobs::cancel))
        .route("/stats", get(server_stats::stats))
        .route("/stats/history", get(history::history))
        .route("/whoami", get(whoami::whoami))
        .route("/namespaces", get(whoami::namespaces))
        .route("/capabilities", get(capabilities::list))
        .route("/os/messages", post(os_messages::send))
        .route("/connections", get(connections::list))
        .route("/connections/{connection}", delete(connections::disconnect))
        .route("/settings", get(settings::settings))
        .route("/log", get(settings::log))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .route("/openapi.json", get(openapi::openapi))
        .route("/asyncapi.json", get(openapi::asyncapi))
        .route("/console", get(console::slash::<SharedApp>))
        .route("/console/", get(console::page::<SharedApp>))
        .route("/console/a/{digest}/{file}", get(console::file::<SharedApp>))
        .route("/console/a/{digest}/{folder}/{file}", get(console::file::<SharedApp>));
    checked(routes, app.edge.clone(), app)
}

/// The routes of the separate listener for probes.
pub(crate) fn probes(app: SharedApp) -> Router {
    let routes = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz));
    checked(routes, app.edge.clone(), app)
}

/// Adds the checks that run before every handler, of a leader and of a follower (`follower/routes.rs`).
pub(crate) fn checked<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    edge: SharedEdge,
    state: S,
) -> Router {
    routes
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(edge.clone(), position::reach))
        .layer(from_fn_with_state(edge.clone(), access::check))
        .layer(from_fn_with_state(edge.clone(), origin::check))
        .layer(from_fn_with_state(edge, access::watch))
        .layer(from_fn(drain_body::finish))
        .with_state(state)
}

async fn unknown_path(uri: Uri) -> Refusal {
    let detail = format!("there is nothing at {:.200}", uri.path());
    Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::NOT_FOUND)
}

async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let detail = format!("{method:.20} is not possible at {:.200}: see the header `allow`", uri.path());
    Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::METHOD_NOT_ALLOWED)
}
