//! Delayed events of sessions and of a server on one file: any running process moves them when due, and each is stored
//! once.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace::{Entity, Event, Handler, Session, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::server::{Server, eventually};
use crate::socket::Socket;

const DELAY: Duration = Duration::from_millis(400);
/// Tells this test binary, started again by a test, to be the session that is killed.
const CHILD_STORE: &str = "MILLRACE_TEST_DELAYED_STORE";

#[derive(Event, Serialize, Deserialize)]
struct ReminderDue {
    n: u64,
}

#[derive(Entity, Serialize, Deserialize)]
struct Reminded {
    #[key]
    n: u64,
    times: u64,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    Timestamp(since.as_millis() as u64)
}

fn earliest(server: &Server, group: &str) -> Socket {
    let mut socket = server.socket();
    socket.subscribe("reminder.due", group, &json!({"from": {"kind": "earliest"}}));
    socket
}

fn next_number(socket: &mut Socket) -> u64 {
    let message = socket.expect("MESSAGE");
    message["envelope"]["payload"]["n"].as_u64().expect("a reminder")
}

/// Returns a handler that counts its events in the state.
fn remind() -> Handler {
    Handler::from_fn::<ReminderDue>("remind", |ctx| {
        let n = ctx.event.n;
        ctx.update(n, move |old: Option<Reminded>| Reminded {
            n,
            times: old.map_or(0, |old| old.times) + 1,
        })?;
        ctx.commit_and_ack()?;
        Ok(())
    })
}

fn times(session: &Session, n: u64) -> u64 {
    session.get::<Reminded>(n).expect("a read").map_or(0, |found| found.value.times)
}

#[test]
fn a_group_of_the_server_receives_what_a_session_delayed() {
    let server = Server::start();
    let mut subscriber = earliest(&server, "g");
    let session = Session::open(&server.store_url()).expect("a session");
    let waits = session.publish(ReminderDue { n: 1 }.with_delay(DELAY)).expect("a commit");
    assert_eq!(next_number(&mut subscriber), 1);
    assert!(now() >= waits.due.expect("it waits"), "not early");
    let waits = session.publish(ReminderDue { n: 2 }.deliver_at(now() + 300)).expect("a commit");
    assert_eq!(next_number(&mut subscriber), 2);
    assert!(now() >= waits.due.expect("it waits"), "not early");
    subscriber.expect_nothing();
}

/// Not a test: runs the session that the next test kills.
#[test]
fn as_a_child_it_delays_events_until_it_is_killed() {
    let Ok(store) = std::env::var(CHILD_STORE) else { return };
    let session = Session::open(&store).expect("a session");
    for n in [1, 2] {
        session.publish(ReminderDue { n }.with_delay(DELAY * 4 * n as u32)).expect("a commit");
    }
    eprintln!("confirmed");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_server_alone_moves_what_a_killed_session_delayed_over_a_restart_too() {
    let mut server = Server::start();
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "together_delayed::as_a_child_it_delays_events_until_it_is_killed", "--nocapture"])
        .env(CHILD_STORE, server.store_url())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child");
    let said = BufReader::new(child.stderr.take().expect("its words"));
    assert!(said.lines().map_while(Result::ok).any(|line| line == "confirmed"), "the child ended");
    child.kill().expect("a kill");
    child.wait().expect("an end");
    // The server does not know this topic yet, and creates it for its subscriber.
    let mut subscriber = earliest(&server, "g");
    assert_eq!(next_number(&mut subscriber), 1);
    drop(subscriber);
    server.kill();
    std::thread::sleep(DELAY);
    server.restart();
    let mut subscriber = earliest(&server, "other");
    assert_eq!((next_number(&mut subscriber), next_number(&mut subscriber)), (1, 2));
    subscriber.expect_nothing();
}

#[test]
fn a_session_alone_moves_what_a_client_of_the_server_delayed() {
    let mut server = Server::start();
    let mut client = server.socket();
    client.send(&json!({"type": "PUBLISH", "topic": "reminder.due", "payload": {"n": 1}, "delay_ms": 500}));
    assert!(client.expect("PUBLISHED")["due"].is_number());
    server.kill();
    let session = Session::open(&server.store_url()).expect("a session");
    let running = session.spawn(vec![remind()], vec![]).expect("a session that runs");
    eventually("the session moves and handles it", || times(&session, 1) == 1);
    session.publish(ReminderDue { n: 2 }.with_delay(DELAY)).expect("a commit without a server");
    eventually("its own, too", || times(&session, 2) == 1);
    running.stop().expect("a session that stops");
}

#[test]
fn with_a_server_and_two_sessions_each_event_is_stored_once() {
    const EVENTS: u64 = 200;
    let server = Server::start();
    let mut subscriber = server.socket();
    subscriber.subscribe("reminder.due", "g", &json!({"max_inflight": 1000}));
    let sessions: Vec<Session> =
        (0..2).map(|_| Session::open(&server.store_url()).expect("a session")).collect();
    let running: Vec<_> =
        sessions.iter().map(|session| session.spawn(vec![remind()], vec![]).expect("it runs")).collect();
    // Twenty events each are due at the same moment: all three movers wake up for them.
    let start = now() + 1000;
    let events = (0..EVENTS).map(|n| ReminderDue { n }.deliver_at(start + n / 20 * 50));
    let waits = sessions[0].publish_all(events).expect("commits");
    assert!(waits.iter().all(|one| one.due.is_some()));
    let mut seen: Vec<u64> = (0..EVENTS).map(|_| next_number(&mut subscriber)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..EVENTS).collect::<Vec<_>>());
    eventually("all are handled", || (0..EVENTS).all(|n| times(&sessions[0], n) == 1));
    subscriber.expect_nothing();
    running.into_iter().for_each(|running| running.stop().expect("a session that stops"));
}
