//! The state of the server, for people and probes.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_broker::{Health, Stall};
use millrace_bus::BusError;
use millrace_wire::ErrorCode;
use millrace_wire::http::Problem;
use serde::Serialize;

use crate::app::{App, SharedApp};
use crate::edge::Edge;
use crate::follower::{FollowPhase, FollowStatus, Unreachable};
use crate::http::{document, json};
use crate::refusal::Refusal;
use crate::to_wire;

/// Liveness: the process answers.
pub(crate) async fn healthz() -> Response {
    json(StatusCode::OK, "{\"status\":\"ok\"}".to_owned())
}

/// Readiness: the server also accepts work.
pub(crate) async fn readyz(State(app): State<SharedApp>) -> Response {
    readiness(&app.edge, Role::Leader, not_ready(&app))
}

/// Why a leader accepts no work. Says nothing of who leads: a probe shows no token.
fn not_ready(app: &App) -> Option<Problem> {
    let health = app.broker.health();
    if let Some(reason) = health.storage_failed() {
        return Some(to_wire::problem(&BusError::StorageFailed(reason.to_owned())));
    }
    if let Some(what) = health.lost_names() {
        let detail = format!("the server stops, because its store has lost its place: {what}");
        return Some(Problem::new(ErrorCode::StorageFailed, detail));
    }
    if health.stopping() {
        return Some(to_wire::problem(&BusError::ShuttingDown));
    }
    if let Some(doubt) = app.edge.doubt.reason() {
        return Some(Problem::new(ErrorCode::StorageFailed, &*doubt));
    }
    waiting(health).map(|detail| Problem::new(ErrorCode::StorageFailed, detail))
}

/// The part that a server plays for a shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Leader,
    Follower,
}

/// The members about a shared store in the answer of `/readyz`.
#[derive(Debug, Serialize)]
struct CopyDoc {
    role: Role,
    phase: &'static str,
    position: u64,
    head_seen: u64,
    /// Left out where a token is needed: whoever asks has shown none.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<Option<String>>,
}

/// A problem with members of its own (RFC 9457, 3.2), or the answer of a server that is ready.
#[derive(Debug, Serialize)]
struct ReadinessDoc<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(flatten)]
    problem: Option<&'a Problem>,
    #[serde(flatten)]
    copy: Option<CopyDoc>,
}

/// The answer of `/readyz`. `problem` is why the server accepts no work; trouble with the copy of a shared store is
/// found here.
pub(crate) fn readiness(edge: &Edge, role: Role, problem: Option<Problem>) -> Response {
    let Some(followed) = edge.copy.get() else {
        return match problem {
            Some(problem) => Refusal::from(problem).into_response(),
            None => json(StatusCode::OK, "{\"status\":\"ready\"}".to_owned()),
        };
    };
    let status = followed.status();
    let patience = Duration::from_millis(edge.settings.broker.commit_stall_ms_max);
    let problem = problem.or_else(|| {
        copy_trouble(&status, patience).map(|detail| Problem::new(ErrorCode::StorageFailed, detail))
    });
    let FollowStatus { phase, position, head_seen, .. } = status;
    let leader = edge.tokens.is_open().then(|| followed.leader());
    let phase = match (role, &phase) {
        (Role::Leader, FollowPhase::Following) => "leading",
        (_, phase) => phase.as_str(),
    };
    let copy = Some(CopyDoc { role, phase, position, head_seen, leader });
    let Some(problem) = problem else {
        return document(StatusCode::OK, &ReadinessDoc { status: Some("ready"), problem: None, copy });
    };
    let doc = ReadinessDoc { status: None, problem: Some(&problem), copy };
    let text = serde_json::to_string(&doc);
    let mut response = Refusal::from(problem).into_response();
    // The document has a JSON form, like its parts; if not, the problem alone is an answer, too.
    if let Ok(text) = text {
        *response.body_mut() = text.into();
    }
    response
}

/// Why a copy is of no use: it is not open yet, or it may be behind by anything. An engine that is away for a moment
/// changes nothing, as a commit that takes a moment does not.
fn copy_trouble(status: &FollowStatus, patience: Duration) -> Option<String> {
    if let FollowPhase::Opening(what) = &status.phase {
        return Some(format!("this server's copy of the store is not open yet: {what}"));
    }
    let Unreachable { away_for, reason } = status.reachable.as_ref().err()?;
    (*away_for >= patience).then(|| {
        let seconds = away_for.as_secs_f64();
        format!("the engine of the store could not be reached for {seconds:.1} s by now: {reason}")
    })
}

/// Why nothing is committed at the moment. Waits for no thread: it may be the one that hangs.
fn waiting(health: &Health) -> Option<String> {
    if let Some(reason) = health.retrying() {
        return Some(format!("a commit is tried again until it comes through: {reason}"));
    }
    let Stall { age, waits_for } = health.stall()?;
    Some(format!(
        "the commit under way has taken {:.1} s by now and waits for {waits_for}",
        age.as_secs_f64()
    ))
}
