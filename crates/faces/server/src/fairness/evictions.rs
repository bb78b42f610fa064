//! Counts evicted connections by reason and logs them within a rate.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::access::LogLines;
use crate::fairness::CallerKey;

/// Why a connection was closed, or a request refused, to make room for others. A closed list, because it is the label
/// of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionReason {
    /// An HTTP connection that was waiting for a request.
    NoRequest,
    /// An HTTP request whose body had not arrived completely.
    RequestBody,
    /// An HTTP response that the peer did not read.
    AnswerUnread,
    /// An HTTP response of which the peer read nothing for `response_write_ms_max`, although nobody waited for its
    /// place.
    AnswerTimeout,
    /// An HTTP request that waited for a place, a reader of the store or memory.
    Waiting,
    /// A WebSocket without a token that made room for another one.
    Unauthenticated,
    /// A WebSocket that sent no token in time.
    AuthTimeout,
    /// A WebSocket of the caller that had most, closed in favour of another caller.
    Share,
    /// A WebSocket in the middle of a large frame, whose caller held most memory in such frames.
    IncompleteFrame,
}

impl EvictionReason {
    const ALL: [EvictionReason; 9] = [
        EvictionReason::NoRequest,
        EvictionReason::RequestBody,
        EvictionReason::AnswerUnread,
        EvictionReason::AnswerTimeout,
        EvictionReason::Waiting,
        EvictionReason::Unauthenticated,
        EvictionReason::AuthTimeout,
        EvictionReason::Share,
        EvictionReason::IncompleteFrame,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            EvictionReason::NoRequest => "no_request",
            EvictionReason::RequestBody => "request_body",
            EvictionReason::AnswerUnread => "answer_unread",
            EvictionReason::AnswerTimeout => "answer_timeout",
            EvictionReason::Waiting => "waiting",
            EvictionReason::Unauthenticated => "unauthenticated",
            EvictionReason::AuthTimeout => "auth_timeout",
            EvictionReason::Share => "share",
            EvictionReason::IncompleteFrame => "incomplete_frame",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Evictions {
    counts: [AtomicU64; EvictionReason::ALL.len()],
    lines: LogLines,
}

impl Evictions {
    pub(crate) fn count(&self, reason: EvictionReason, caller: &CallerKey) {
        if let Some(count) = self.counts.get(reason as usize) {
            count.fetch_add(1, Relaxed);
        }
        if let Some(suppressed) = self.lines.next() {
            let reason = reason.as_str();
            tracing::warn!(target: "millrace::crowd", reason, %caller, suppressed, "a connection was closed");
        }
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        EvictionReason::ALL
            .iter()
            .zip(&self.counts)
            .map(|(reason, count)| (reason.as_str(), count.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_counter_of_its_own() {
        let evictions = Evictions::default();
        let caller = CallerKey::of_address([127, 0, 0, 1].into());
        for reason in EvictionReason::ALL {
            evictions.count(reason, &caller);
        }
        let counts: Vec<_> = evictions.counts().collect();
        assert!(counts.iter().all(|(_, count)| *count == 1), "{counts:?}");
    }
}
