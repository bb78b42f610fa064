//! A request that is turned down: RFC 9457 problem details.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::{BusError, Reply};
use millrace_wire::http::{PROBLEM_CONTENT_TYPE, Problem};
use millrace_wire::{ErrorCode, FrameError};

use crate::access::{Reason, TooSoon};
use crate::to_wire;

/// Boxed, because it travels in the error side of every handler's result.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Answer>);

#[derive(Debug)]
struct Answer {
    problem: Problem,
    header: Option<(HeaderName, HeaderValue)>,
    /// For the audit, where it is not what the caller is told.
    why: Option<Reason>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Refusal {
        Problem::new(code, detail).into()
    }

    pub(crate) fn status(mut self, status: StatusCode) -> Refusal {
        self.0.problem.status = status.as_u16();
        self
    }

    /// What the status asks for beside itself: a challenge, a time to wait.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Refusal {
        self.0.header = Some((name, value));
        self
    }

    /// The engine's own refusal.
    pub(crate) fn of(error: &BusError) -> Refusal {
        let mut refusal = Refusal::from(to_wire::problem(error));
        if let BusError::Hidden { why, .. } = error {
            refusal.0.why = Some(Reason { code: to_wire::code(why), why: why.to_string().into() });
        }
        refusal
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
        Refusal(Box::new(Answer { problem, header: None, why: None }))
    }
}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Refusal {
        Problem::from(error).into()
    }
}

impl From<TooSoon> for Refusal {
    fn from(too_soon: TooSoon) -> Refusal {
        let seconds = too_soon.wait_ms.div_ceil(1000).max(1);
        Refusal::new(ErrorCode::RateLimited, too_soon.to_string())
            .header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Answer { problem, header, why } = *self.0;
        let mut text = String::new();
        problem.write(&mut text);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = HeaderValue::from_static(PROBLEM_CONTENT_TYPE);
        let mut response = (status, [(header::CONTENT_TYPE, kind)], text).into_response();
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        let told = |problem: Problem| {
            Some(Reason { code: ErrorCode::parse(&problem.code)?, why: problem.detail.into() })
        };
        if let Some(reason) = why.or_else(|| told(problem)) {
            response.extensions_mut().insert(reason);
        }
        response
    }
}
