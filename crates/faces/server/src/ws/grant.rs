//! The present grant of a connection, and its end: a token that is removed or expires ends its connections.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::access::{Grant, GrantEnd};
use crate::edge::Edge;
use crate::ws::close::WsEnd;

/// While an expiry lies ahead the clock is read this often, so that a step of the wall clock is noticed.
const LOOK_MS_MAX: u64 = 1000;

/// The grant of one connection. The connection's reader changes it when the peer shows another token.
#[derive(Debug)]
pub(super) struct CurrentGrant {
    grant: Mutex<Option<Arc<Grant>>>,
    changed: Notify,
}

impl CurrentGrant {
    pub(super) fn new(grant: Option<Arc<Grant>>) -> CurrentGrant {
        CurrentGrant { grant: Mutex::new(grant), changed: Notify::new() }
    }

    pub(super) fn set(&self, grant: Arc<Grant>) {
        *self.grant.lock() = Some(grant);
        self.changed.notify_one();
    }

    /// Whether the grant has ended, and if not, when to check again at the latest.
    fn check(&self) -> (Option<GrantEnd>, Option<Duration>) {
        let grant = self.grant.lock();
        let Some(grant) = grant.as_deref() else { return (None, None) };
        (grant.ended(), grant.left_ms().map(|left| Duration::from_millis(left.clamp(1, LOOK_MS_MAX))))
    }

    /// Returns only when the connection's token or certificate is no longer accepted: then it must not receive any
    /// more.
    pub(super) async fn ended(&self, edge: &Edge) -> WsEnd {
        let mut reloads = edge.reloads.subscribe();
        loop {
            let again = match self.check() {
                (Some(end), _) => return WsEnd::Ended(end),
                (None, again) => again,
            };
            let look_again = async {
                match again {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let reloaded = async {
                // Without a sender the server has gone, and there is nothing to wait for.
                if reloads.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = look_again => {}
                () = reloaded => {}
                () = self.changed.notified() => {}
            }
        }
    }
}
