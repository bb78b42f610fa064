//! A server and a session of another process on one file tell each other of their commits; and what happens to commits
//! that nobody tells of.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use millrace::{Config, Event, Handler, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::Server;
use crate::socket::Socket;

/// Longer than any test: whatever arrives was told.
const NEVER: u64 = 24 * 3600 * 1000;
const ROUND_TRIPS: u64 = 30;

#[derive(Event, Serialize, Deserialize)]
struct Asked {
    n: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct Answered {
    n: u64,
}

fn answers() -> Handler {
    Handler::from_fn::<Asked>("told::answers", |ctx| {
        let n = ctx.event.n;
        ctx.emit(Answered { n })?;
        Ok(())
    })
}

fn session(server: &Server, config: Config) -> Session {
    Session::builder(&server.store_url()).config(config).open().expect("a session")
}

fn subscriber(server: &Server, group: &str) -> Socket {
    let mut socket = server.socket();
    socket.subscribe("answered", group, &json!({"from": {"kind": "latest"}}));
    socket
}

fn next_answer(subscriber: &mut Socket) -> Value {
    subscriber.expect("MESSAGE")["envelope"]["payload"]["n"].clone()
}

#[test]
fn a_server_and_a_session_need_no_polls_and_survive_the_death_of_the_other() {
    let never = NEVER.to_string();
    let mut server = Server::with(&["--watch-interval-ms", &never, "--watch-idle-ms-max", &never]);
    let config = Config {
        wake_poll_ms: NEVER,
        wake_poll_idle_ms_max: NEVER,
        event_poll_interval_ms: NEVER,
        ..Config::default()
    };
    let session = session(&server, config);
    let running = session.spawn(vec![answers()], vec![]).expect("a running session");
    for life in 0..3 {
        let mut subscriber = subscriber(&server, &format!("g{life}"));
        let mut publisher = server.socket();
        for n in 0..ROUND_TRIPS {
            publisher.publish("asked", &json!({ "n": n }));
            assert_eq!(next_answer(&mut subscriber), n);
        }
        server.kill_and_restart();
    }
    running.stop().expect("a session that stops");
}

/// Makes the commits of handles that have committed before look as if nobody had begun to listen since: the number in
/// the lock file goes back to what they know.
fn silence_earlier_handles(server: &Server) {
    let writer =
        File::options().read(true).write(true).open(locks(server).join("writer")).expect("a lock file");
    let mut mark = [0; 8];
    writer.read_exact_at(&mut mark, 16).expect("a mark");
    let before = u64::from_le_bytes(mark) - 1;
    writer.write_all_at(&before.to_le_bytes(), 16).expect("a mark");
}

fn locks(server: &Server) -> PathBuf {
    server.folder().join("test.db-locks")
}

#[test]
fn commits_that_are_not_told_are_found_by_polling() {
    let mut server = Server::start();
    let session = session(&server, Config::default());
    // The server stops listening, the session learns of that with its next commits, and the server listens again.
    server.kill();
    for n in 0..2 {
        session.publish(Answered { n }).expect("a commit");
    }
    server.restart();
    silence_earlier_handles(&server);
    let mut subscriber = subscriber(&server, "g");
    // The net: a poll every few seconds.
    session.publish(Answered { n: 10 }).expect("a commit");
    assert_eq!(next_answer(&mut subscriber), 10);
    // A process of an older version opens the store. The server notices that, and polls.
    let older = File::options().append(true).open(locks(&server).join("present")).expect("a lock file");
    older.lock_shared().expect("a lock");
    for n in 11..30 {
        session.publish(Answered { n }).expect("a commit");
        assert_eq!(next_answer(&mut subscriber), n);
    }
}
