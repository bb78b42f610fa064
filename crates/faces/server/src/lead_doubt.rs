//! Doubt about the lead: a leader of a shared store that could not place a record for a while may have been replaced,
//! and cannot know it while it cannot reach the engine.
//!
//! While its lead is in doubt, a server delivers nothing (another server may be delivering the same events), refuses new
//! requests that write, and closes WebSockets with `moved`, so that clients look for the leader. If the lead is still
//! this server's when the engine is back, everything goes on, and the clients come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_broker::BrokerHandle;
use tokio::sync::watch;

use crate::edge::SharedEdge;

/// Whether the lead is in doubt, as connections and requests see it.
#[derive(Debug, Default)]
pub(crate) struct LeadDoubt {
    reason: watch::Sender<Option<Arc<str>>>,
    times: AtomicU64,
}

impl LeadDoubt {
    /// Returns why the lead is in doubt, if it is.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.reason.borrow().clone()
    }

    /// Returns how often the lead was in doubt since this server leads.
    pub(crate) fn times(&self) -> u64 {
        self.times.load(Relaxed)
    }

    /// Returns when the lead is in doubt, at once if it is now.
    pub(crate) async fn begun(&self) {
        // The sender lives as long as this value.
        let _ = self.reason.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns whether a doubt has begun or ended. A new reason for the same doubt is told to those who look, and wakes
    /// nobody.
    fn set(&self, reason: Option<String>) -> bool {
        self.reason.send_if_modified(|standing| {
            let is_change = standing.is_some() != reason.is_some();
            if is_change {
                self.times.fetch_add(u64::from(reason.is_some()), Relaxed);
            }
            *standing = reason.map(Into::into);
            is_change
        })
    }
}

/// See [`crate::Server::lead_doubter`].
#[derive(Clone)]
pub struct LeadDoubter {
    edge: SharedEdge,
    broker: BrokerHandle,
}

impl LeadDoubter {
    pub(crate) fn new(edge: SharedEdge, broker: BrokerHandle) -> LeadDoubter {
        LeadDoubter { edge, broker }
    }

    /// Says why the lead is in doubt, or `None` when it is certain again. Repeating either changes nothing.
    pub fn tell(&self, doubt: Option<String>) {
        let (is_doubted, text) = (doubt.is_some(), doubt.clone().unwrap_or_default());
        if !self.edge.doubt.set(doubt) {
            return;
        }
        self.broker.pause_delivery(is_doubted);
        if is_doubted {
            let connections = self.edge.seats.taken();
            tracing::warn!(
                connections,
                "the lead is in doubt, clients are sent to look for the leader: {text}"
            );
        } else {
            tracing::info!("the lead is certain again: this server serves everything");
        }
    }
}

impl std::fmt::Debug for LeadDoubter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeadDoubter").field("doubt", &self.edge.doubt).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_counted_when_it_begins() {
        let doubt = LeadDoubt::default();
        assert!(!doubt.set(None));
        assert!(doubt.set(Some("one".into())) && !doubt.set(Some("two".into())));
        assert_eq!((doubt.reason().as_deref(), doubt.times()), (Some("two"), 1));
        assert!(doubt.set(None) && doubt.set(Some("three".into())));
        assert_eq!(doubt.times(), 2);
    }
}
