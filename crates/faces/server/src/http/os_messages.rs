//! `POST /os/messages`: one message to the CQRS loop and its outcome, for callers that need no connection.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_bus::BusError;
use millrace_wire::ErrorCode;
use millrace_wire::http::OsAccepted;

use crate::access::Caller;
use crate::app::SharedApp;
use crate::body::read_text;
use crate::http::{document, json};
use crate::moved::Moved;
use crate::observe::HttpRequester;
use crate::params::Params;
use crate::refusal::Refusal;
use crate::ws::os;

/// The longest that a request waits for its outcome, and how long if it does not say.
const WAIT_MS_MAX: u64 = 60_000;
const WAIT_MS_DEFAULT: u64 = 30_000;

/// Errors of the loop and of capabilities are outcomes like replies: 200, with `kind` `error`. A message that is refused
/// before it reaches the loop is answered with a problem.
pub(crate) async fn send(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
    body: Body,
) -> Result<Response, Refusal> {
    let wait_ms = params.number("timeoutMs", 1..=WAIT_MS_MAX)?.unwrap_or(WAIT_MS_DEFAULT);
    let line_max = app.edge.settings.kernel.line_bytes_max;
    let body = read_text(&app.edge, body, line_max).await?;
    let stopping = || app.refusal(&BusError::ShuttingDown);
    if app.broker.health().stopping() {
        return Err(stopping());
    }
    if let Some(doubt) = app.edge.doubt.reason() {
        return Err(Moved::to(None).refusal_because(&doubt));
    }
    let bad = |detail: String| Refusal::new(ErrorCode::BadFrame, detail);
    let (sender, mut outcomes) = app.kernel.open(caller.by()).await.map_err(|_| stopping())?;
    let message =
        os::read(&app.edge, &body.text, &|| sender.stamp()).map_err(|refusal| bad(refusal.message))?;
    if let Some(why) = caller.grant.as_deref().and_then(|grant| grant.rights.refuse(&message)) {
        return Err(Refusal::new(ErrorCode::Forbidden, why));
    }
    let (kind, is_request) = (message.kind, message.kind.is_request());
    if !is_request && kind != millrace_model::OsKind::Event {
        let detail =
            format!("kind is {kind}: a caller sends commands, queries and events, and gets outcomes");
        return Err(bad(detail));
    }
    sender.send(message).await.map_err(|_| stopping())?;
    if !is_request {
        return Ok(document(StatusCode::ACCEPTED, &OsAccepted { accepted: true }));
    }
    let waiting = tokio::time::timeout(Duration::from_millis(wait_ms), outcomes.next());
    match HttpRequester::wait_for(waiting).await? {
        Ok(Some(line)) => Ok(json(StatusCode::OK, line)),
        Ok(None) => Err(stopping()),
        Err(_) => {
            let detail = format!(
                "there is no outcome after {wait_ms} ms (timeoutMs): the request goes on, and nobody gets its answer"
            );
            Err(Refusal::new(ErrorCode::LimitReached, detail).status(StatusCode::GATEWAY_TIMEOUT))
        }
    }
}
