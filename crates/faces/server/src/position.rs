//! Positions of a shared store: a page says up to which record its server's copy had come, and a request may ask for at
//! least one position, so that a client that goes from server to server never reads from the past.
//!
//! A server with a store of its own has no positions: whatever it has confirmed it shows at once.

use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_wire::ErrorCode;

use crate::edge::{Edge, SharedEdge};
use crate::follower::FollowedStore;
use crate::observe::HttpRequester;
use crate::params::Params;
use crate::refusal::{Refusal, overloaded};

pub(crate) const POSITION: HeaderName = HeaderName::from_static("x-millrace-position");
const MIN_POSITION: HeaderName = HeaderName::from_static("x-millrace-min-position");
/// The same as a parameter, for clients that cannot set headers.
const MIN_POSITION_PARAM: &str = "min_position";
const INTEGER_MAX: u64 = (1 << 53) - 1;
/// How often the position is looked at while a request waits for it.
const POLL: Duration = Duration::from_millis(10);

/// Middleware around the handlers that read the copy.
pub(crate) async fn reach(State(edge): State<SharedEdge>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD) && route.is_some_and(reads_copy);
    if !reads {
        return next.run(request).await;
    }
    let min = match asked(&request) {
        Ok(min) => min,
        Err(refusal) => return refusal.into_response(),
    };
    let Some(copy) = edge.copy.get() else { return next.run(request).await };
    // Taken before the read: the read sees at least this much.
    match position(&edge, &**copy, min).await {
        Ok(position) => {
            let mut response = next.run(request).await;
            response.headers_mut().insert(POSITION, HeaderValue::from(position));
            response
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// The routes whose answers come from the copy; `follower/routes.rs` serves these.
fn reads_copy(route: &str) -> bool {
    matches!(
        route,
        "/topics"
            | "/topics/{topic}"
            | "/topics/{topic}/schemas"
            | "/topics/{topic}/events"
            | "/dead-letters"
    )
}

/// The position that a request asks for; the larger one if header and parameter are both given.
fn asked(request: &Request) -> Result<u64, Refusal> {
    let param = Params::of_uri(request.uri())?.number(MIN_POSITION_PARAM, 0..=INTEGER_MAX)?;
    let header = match request.headers().get(&MIN_POSITION) {
        None => None,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.parse().ok());
            Some(number.filter(|number| *number <= INTEGER_MAX).ok_or_else(|| {
                let detail = format!("{MIN_POSITION} must be a whole number from 0 to {INTEGER_MAX}");
                Refusal::new(ErrorCode::BadFrame, detail)
            })?)
        }
    };
    Ok(param.unwrap_or(0).max(header.unwrap_or(0)))
}

/// Waits until the copy has come to `min`, at most `position_wait_ms_max`, and returns how far it is.
async fn position(edge: &Edge, copy: &dyn FollowedStore, min: u64) -> Result<u64, Refusal> {
    let reached = async {
        loop {
            let position = copy.status().position;
            if position >= min {
                return position;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let wait_ms = edge.settings.position_wait_ms_max;
    let waited = tokio::time::timeout(Duration::from_millis(wait_ms), reached);
    HttpRequester::wait_for(waited).await?.map_err(|_| {
        let position = copy.status().position;
        overloaded(format!(
            "this server's copy did not come to position {min} within {wait_ms} ms, it is at {position}: try again, or \
             ask the server that leads"
        ))
    })
}
