//! What a connection may do by now, and the end of it: a token that is taken away or expires ends its connections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::access::{Grant, GrantEnd};
use crate::app::App;
use crate::ws::close::End;

/// The clock is looked at this often while an expiry lies ahead, so that a step of the wall clock is noticed.
const LOOK_MS_MAX: u64 = 1000;

/// The grant of one connection. Its reader changes it, when another token is shown.
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
        *self.grant.lock().unwrap_or_else(PoisonError::into_inner) = Some(grant);
        self.changed.notify_one();
    }

    /// Whether it has ended, and if not, when to look again at the latest.
    fn look(&self) -> (Option<GrantEnd>, Option<Duration>) {
        let grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(grant) = grant.as_deref() else { return (None, None) };
        (grant.ended(), grant.left_ms().map(|left| Duration::from_millis(left.clamp(1, LOOK_MS_MAX))))
    }

    /// Returns only for a connection whose token or certificate is no longer accepted: it must not go on receiving.
    pub(super) async fn ended(&self, app: &App) -> End {
        let mut reloads = app.reloads.subscribe();
        loop {
            let again = match self.look() {
                (Some(end), _) => return End::Ended(end),
                (None, again) => again,
            };
            let look_again = async {
                match again {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let reloaded = async {
                // Without a sender there is no server, and nothing to wait for here.
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
