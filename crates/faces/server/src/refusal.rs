//! A refused request: RFC 9457 problem details.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::{BusError, Reply};
use millrace_model::{Offset, Partition};
use millrace_wire::http::{PROBLEM_CONTENT_TYPE, Problem};
use millrace_wire::{ErrorCode, FrameError};

use crate::access::{Reason, TooSoon};
use crate::fairness::SentAway;
use crate::to_wire;

/// When to retry if the server is overloaded; nobody knows how long that lasts.
const RETRY_AFTER_SECONDS: u64 = 1;

/// A refusal as a response. Boxed, because it is the error type of every handler's result.
#[derive(Debug)]
pub(crate) struct Refusal(Box<RefusalAnswer>);

#[derive(Debug)]
struct RefusalAnswer {
    problem: Problem,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The reason for the audit, if it differs from what the caller is told.
    why: Option<Reason>,
    /// The index of the event in a batch that does not match the schema.
    mismatch: Option<usize>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Refusal {
        Problem::new(code, detail).into()
    }

    pub(crate) fn status(mut self, status: StatusCode) -> Refusal {
        self.0.problem.status = status.as_u16();
        self
    }

    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        self.0.problem.code == code.as_str()
    }

    /// The text for the caller.
    pub(crate) fn detail(&self) -> &str {
        &self.0.problem.detail
    }

    /// Adds a header that belongs to the status: a challenge, a time to wait, another server.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Refusal {
        self.0.headers.push((name, value));
        self
    }

    /// Adds to a replay that was cut short what was done before and where to go on, so that nothing is lost or doubled.
    pub(crate) fn in_replay(mut self, replayed: u64, duplicates: u64, next: Offset) -> Refusal {
        let problem = &mut self.0.problem;
        problem.detail += &format!(" (letters replayed before this: {replayed}; go on at offset {next})");
        (problem.replayed, problem.duplicates, problem.next) = (Some(replayed), Some(duplicates), Some(next));
        self
    }

    /// Makes the response for a refusal of the engine.
    pub(crate) fn of(error: &BusError) -> Refusal {
        let mut refusal = Refusal::from(to_wire::problem(error));
        if let BusError::Hidden { why, .. } = error {
            refusal.0.why = Some(Reason { code: to_wire::code(why), why: why.to_string().into() });
        }
        if let BusError::SchemaMismatch { index, .. } = error {
            refusal.0.mismatch = *index;
        }
        refusal
    }

    /// If the refusal is about an event that does not match the topic's schema: its index in the batch.
    pub(crate) fn schema_mismatch(&self) -> Option<usize> {
        self.0.mismatch
    }

    /// Adds which dead letter the refusal is about.
    pub(crate) fn at(mut self, partition: Partition, offset: Offset) -> Refusal {
        let problem = &mut self.0.problem;
        (problem.partition, problem.offset) = (Some(partition), Some(offset));
        problem.detail += &format!(
            "; it is the dead letter at partition {partition}, offset {offset}, and those before it were replayed"
        );
        self
    }

    /// The engine gave a reply that does not fit the request.
    pub(crate) fn unexpected(reply: &Reply) -> Refusal {
        tracing::error!(?reply, "an answer does not fit its request");
        let refusal = Refusal::new(ErrorCode::StorageFailed, "the server failed to answer");
        refusal.status(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal(Box::new(RefusalAnswer { problem, headers: Vec::new(), why: None, mismatch: None }))
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

impl From<SentAway> for Refusal {
    fn from(_: SentAway) -> Refusal {
        overloaded("others need the place of this connection, which kept the server waiting: try again")
    }
}

/// A refusal because the server is short of something. A retry later may succeed.
pub(crate) fn overloaded(detail: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::LimitReached, detail)
        .status(StatusCode::SERVICE_UNAVAILABLE)
        .header(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let RefusalAnswer { problem, headers, why, .. } = *self.0;
        let mut text = String::new();
        problem.write(&mut text);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = HeaderValue::from_static(PROBLEM_CONTENT_TYPE);
        let mut response = (status, [(header::CONTENT_TYPE, kind)], text).into_response();
        response.headers_mut().extend(headers);
        let told = |problem: Problem| {
            Some(Reason { code: ErrorCode::parse(&problem.code)?, why: problem.detail.into() })
        };
        if let Some(reason) = why.or_else(|| told(problem)) {
            response.extensions_mut().insert(reason);
        }
        response
    }
}
