//! One connection from its first frame to its last words.

use futures_util::StreamExt;
use millrace_model::Namespace;
use millrace_runtime::Link;
use tokio::sync::mpsc;

use crate::app::App;
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
}

/// Both directions run inside one task, so neither needs a lock against the other and the first to end ends both.
pub(crate) async fn run(app: &App, socket: Socket, namespace: Namespace) {
    let Ok(link) = app.runtime.open(namespace.clone()) else { return };
    let connection = Connection {
        app,
        link,
        unanswered: Unanswered::new(app.settings.unanswered_max.max(1)),
        pulse: Pulse::default(),
    };
    let (mut sink, mut stream) = socket.split();
    let (answers, own_answers) = mpsc::channel(OWN_ANSWERS_MAX);
    let end = tokio::select! {
        end = write::run(&connection, &mut sink, own_answers) => end,
        end = read::run(&connection, &mut stream, namespace, answers) => end,
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
