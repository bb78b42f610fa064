//! One connection from its first frame to its last words.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use millrace_bus::{BusError, Reply};
use millrace_model::Namespace;
use millrace_runtime::{Item, Link};
use millrace_wire::ErrorCode;
use tokio::sync::mpsc;

use crate::access::{Caller, Grant, Refused};
use crate::app::App;
use crate::to_wire::Waiting;
use crate::ws::close::{End, last_words};
use crate::ws::pulse::Pulse;
use crate::ws::unanswered::Unanswered;
use crate::ws::upgrade::Socket;
use crate::ws::{read, write};

/// Frames the reader answers itself, waiting to be written: the reader waits.
const OWN_ANSWERS_MAX: usize = 64;

/// What both directions of a connection share.
pub(super) struct Connection<'a> {
    pub(super) app: &'a App,
    pub(super) link: Link,
    pub(super) unanswered: Unanswered,
    pub(super) pulse: Pulse,
    pub(super) namespace: Namespace,
    /// As the upgrade brought it.
    pub(super) caller: Caller,
    /// What it may do by now: an AUTH frame may have changed it.
    grant: Mutex<Option<Arc<Grant>>>,
    /// Whether it may stay: it brought a token, or none is needed.
    pub(super) signed_in: AtomicBool,
}

impl Connection<'_> {
    /// With a token that an AUTH frame brought.
    pub(super) fn enter(&self, grant: Arc<Grant>) {
        *self.grant.lock().unwrap_or_else(PoisonError::into_inner) = Some(grant);
    }

    fn is_revoked(&self) -> bool {
        let grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        grant.as_deref().is_some_and(Grant::is_revoked)
    }

    /// What the engine refused by a topic's list is written down like any other refusal.
    pub(super) fn note(&self, item: &Item, waiting: Option<&Waiting>) {
        let (Item::Reply { reply: Reply::Refused(error), .. } | Item::Notice { error, .. }) = item else {
            return;
        };
        if let BusError::Forbidden { .. } = error {
            let what = waiting.map_or("MESSAGE", |waiting| waiting.op);
            let (code, why) = (ErrorCode::Forbidden, &error.to_string());
            self.app.audit.refused(&Refused { code, caller: &self.caller, what: &what, why });
        }
    }
}

/// Both directions run inside one task, so neither needs a lock against the other and the first to end ends both.
pub(crate) async fn run(app: &App, socket: Socket, namespace: Namespace, caller: Caller) {
    let Ok(link) = app.runtime.open(namespace.clone()) else { return };
    let connection = Connection {
        app,
        link,
        unanswered: Unanswered::new(app.settings.unanswered_max.max(1)),
        pulse: Pulse::default(),
        signed_in: AtomicBool::new(app.tokens.is_open() || caller.grant.is_some()),
        grant: Mutex::new(caller.grant.clone()),
        namespace,
        caller,
    };
    let (mut sink, mut stream) = socket.split();
    let (answers, own_answers) = mpsc::channel(OWN_ANSWERS_MAX);
    let end = tokio::select! {
        end = write::run(&connection, &mut sink, own_answers) => end,
        end = read::run(&connection, &mut stream, answers) => end,
        end = stranger(&connection) => end,
        end = revoked(&connection) => end,
    };
    let conn = connection.link.conn().0;
    match end {
        End::Dropped(why) => {
            tracing::warn!(conn, why, "a connection was dropped");
        }
        end => tracing::debug!(conn, ?end, "a connection ended"),
    }
    // Before the last words: what the connection held must not wait for a peer that takes its time.
    drop(connection);
    last_words(end, sink, stream, app.closing.clone()).await;
}

/// Ends only for a connection whose token was taken away: it must not go on receiving.
async fn revoked(connection: &Connection<'_>) -> End {
    let mut reloads = connection.app.reloads.subscribe();
    while !connection.is_revoked() {
        if reloads.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
    End::Revoked
}

/// Ends only for a connection that did not say in time who it is: strangers must not hold places for good.
async fn stranger(connection: &Connection<'_>) -> End {
    tokio::time::sleep(Duration::from_millis(connection.app.settings.auth_ms_max)).await;
    if connection.signed_in.load(Relaxed) {
        std::future::pending::<()>().await;
    }
    End::Unauthenticated
}
