//! The record of those who were turned away: one structured line each, target `millrace::audit`, within a bound.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use millrace_wire::ErrorCode;

use crate::access::{Caller, Meter, Peer, Rate};
use crate::app::SharedApp;

/// Lines per second, and at once. What is above is counted and told by the next line.
const LINES: Rate = Rate { per_second: 10, burst: 100 };
/// Longest piece of a path that is written down: it is the caller's own text.
const WHAT_CHARS_MAX: usize = 200;

#[derive(Debug)]
pub(crate) struct Audit {
    lines: Meter,
    suppressed: AtomicU64,
}

/// Somebody was turned away. No secret is ever part of it.
pub(crate) struct Refused<'a> {
    pub(crate) code: ErrorCode,
    pub(crate) caller: &'a Caller,
    /// The frame's type, or method and path.
    pub(crate) what: &'a dyn fmt::Display,
    pub(crate) why: &'a str,
}

impl Default for Audit {
    fn default() -> Audit {
        Audit { lines: Meter::new(LINES), suppressed: AtomicU64::new(0) }
    }
}

impl Audit {
    pub(crate) fn refused(&self, refused: &Refused<'_>) {
        if self.lines.take(1).is_err() {
            self.suppressed.fetch_add(1, Relaxed);
            return;
        }
        let what: String = refused.what.to_string().chars().take(WHAT_CHARS_MAX).collect();
        tracing::warn!(
            target: "millrace::audit",
            code = refused.code.as_str(),
            agent = refused.caller.agent(),
            peer = %refused.caller.peer.addr,
            what = ?what,
            why = ?refused.why,
            suppressed = self.suppressed.swap(0, Relaxed),
            "refused"
        );
    }
}

/// Whether a refusal is about access, and so belongs here.
pub(crate) fn is_access(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unauthorized | ErrorCode::Forbidden | ErrorCode::RateLimited)
}

/// What a refusal leaves in its response for [`watch`].
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    pub(crate) code: ErrorCode,
    pub(crate) why: Box<str>,
}

/// Outermost, so that no refusal over HTTP escapes it.
pub(crate) async fn watch(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let peer = request.extensions().get::<Peer>().cloned();
    let response = next.run(request).await;
    if let (Some(reason), Some(peer)) = (response.extensions().get::<Reason>(), peer) {
        let nobody = Caller { peer, grant: None };
        let caller = response.extensions().get::<Caller>().unwrap_or(&nobody);
        let what = &format_args!("{method} {path}");
        app.audit.refused(&Refused { code: reason.code, caller, what, why: &reason.why });
    }
    response
}
