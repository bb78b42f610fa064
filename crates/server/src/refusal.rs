//! A request that is turned down: RFC 9457 problem details.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::Reply;
use millrace_wire::http::{PROBLEM_CONTENT_TYPE, Problem};
use millrace_wire::{ErrorCode, FrameError};

/// Boxed, because it travels in the error side of every handler's result.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Problem>);

impl Refusal {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Refusal {
        Problem::new(code, detail).into()
    }

    pub(crate) fn status(self, status: StatusCode) -> Refusal {
        self.0.status(status.as_u16()).into()
    }

    /// The engine answered something that no answer to this request can be.
    pub(crate) fn unexpected(reply: &Reply) -> Refusal {
        tracing::error!(?reply, "an answer does not fit its request");
        let refusal = Refusal::new(ErrorCode::StorageFailed, "the server failed to answer");
        refusal.status(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal(Box::new(problem))
    }
}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Refusal {
        Problem::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut text = String::new();
        self.0.write(&mut text);
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = HeaderValue::from_static(PROBLEM_CONTENT_TYPE);
        (status, [(header::CONTENT_TYPE, kind)], text).into_response()
    }
}
