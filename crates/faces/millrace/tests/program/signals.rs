//! `Session::run` in a process of its own, with real signals. The first signal stops it gracefully: events that were
//! claimed but not started are given back at once and without costing an attempt. The second signal ends the process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{Config, Handler, Session};
use millrace_session::model::{ClaimRow, Space};
use millrace_store::{KeyRange, Store};

use crate::{Ping, Place};

const STORE: &str = "MILLRACE_TEST_SIGNALS_STORE";
const GRACE: &str = "MILLRACE_TEST_SIGNALS_GRACE_MS";
const HANDLER: &str = "pings";
/// Long enough that no event is redelivered because a lease expired.
const LEASE_MS: u64 = 24 * 3600 * 1000;

/// So long that a stop cuts off no handler, unless a test sets a shorter time.
const GRACE_MS: u64 = LEASE_MS;

fn config() -> Config {
    let grace_ms = std::env::var(GRACE).ok().and_then(|text| text.parse().ok());
    let stop_grace_ms = grace_ms.unwrap_or(GRACE_MS);
    Config { event_claim_lease_ms: LEASE_MS, stop_grace_ms, ..Config::default() }
}

/// A child process that is handling the first of three events and has claimed the other two.
struct Program {
    child: Child,
    /// Kept open, because the process prints more when it ends.
    said: BufReader<ChildStdout>,
    store: Arc<dyn Store>,
}

impl Program {
    fn start(place: &Place) -> Program {
        Program::start_with_grace(place, GRACE_MS)
    }

    fn start_with_grace(place: &Place, grace_ms: u64) -> Program {
        let session = Session::open(&place.url()).unwrap();
        session.publish_all((1..=3).map(|n| Ping { n })).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signals::child", "--nocapture", "--test-threads=1"])
            .env(STORE, place.url())
            .env(GRACE, grace_ms.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let store = place.store();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, said, store };
        let mut line = String::new();
        while !line.contains("handling 1") {
            line.clear();
            assert!(program.said.read_line(&mut line).unwrap() > 0, "it ended without handling anything");
        }
        assert_eq!(program.claims().iter().filter(|row| row.session.is_some()).count(), 3);
        program
    }

    /// Returns the open claims, beginning with that of the event being handled.
    fn claims(&self) -> Vec<ClaimRow> {
        let rows = self.store.scan(Space::Claims, &KeyRange::all(), 100).unwrap();
        let mut rows: Vec<_> =
            rows.iter().map(|row| ClaimRow::decode(&row.key, &row.value).unwrap()).collect();
        rows.sort_by_key(|row| row.session.is_none());
        rows
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(name).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the signal has taken effect: the process gives back two claims while the first event is still
    /// handled.
    fn gives_back(&mut self) {
        while self.claims().iter().filter(|row| row.session.is_none()).count() < 2 {
            assert_eq!(self.child.try_wait().unwrap(), None, "it ended in the middle of an event");
            std::thread::sleep(Duration::from_millis(5));
        }
        let claims = self.claims();
        assert_eq!(claims.len(), 3, "the event that is handled is still its own");
        assert!(claims.iter().all(|row| row.attempts == 0), "{claims:?}");
        assert!(claims[1..].iter().all(|row| row.due.0 < claims[0].due.0 - LEASE_MS / 2), "ready at once");
    }

    fn ends(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if the process has ended, as it has when the test passes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that the next session gets the other two events, each as a first attempt.
fn the_rest_is_handled_next(place: &Place) {
    let session = Session::builder(&place.url()).config(config()).open().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let handler = Handler::from_fn::<Ping>(HANDLER, move |ctx| {
        notes.lock().unwrap().push((ctx.event.n, ctx.meta().attempt));
        Ok(())
    });
    session.run_until_idle(vec![handler], vec![]).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(2, 1), (3, 1)]);
    assert_eq!(session.dead_letters().unwrap(), []);
}

fn stops_gracefully(signal: &str) {
    let place = Place::empty();
    let mut program = Program::start(&place);
    program.signal(signal);
    program.gives_back();
    // The stopping program waits for its handler, which returns at the end of its standard input.
    drop(program.child.stdin.take());
    let status = program.ends();
    assert!(status.success(), "{status}");
    assert_eq!(program.claims().len(), 2, "the first event is acknowledged");
    let sessions = Session::open(&place.url()).unwrap().sessions().unwrap();
    assert_eq!(sessions.len(), 1);
    assert!(sessions[0].1.stopped.is_some(), "it has said goodbye");
    the_rest_is_handled_next(&place);
}

fn a_second_one_ends_it(signal: &str, code: i32) {
    let place = Place::empty();
    let mut program = Program::start(&place);
    program.signal(signal);
    program.gives_back();
    program.signal(signal);
    assert_eq!(program.ends().code(), Some(code));
    let held: Vec<_> = program.claims().into_iter().filter(|row| row.session.is_some()).collect();
    assert_eq!(held.len(), 1, "the event it was in the middle of waits for its lease");
}

#[test]
fn ctrl_c_stops_a_program_gracefully() {
    stops_gracefully("-INT");
}

#[test]
fn sigterm_stops_a_program_gracefully() {
    stops_gracefully("-TERM");
}

#[test]
fn a_second_signal_ends_a_program_that_waits_for_its_handler() {
    a_second_one_ends_it("-INT", 130);
    a_second_one_ends_it("-TERM", 143);
}

/// The handler never returns here: the program ends without it, and all three events are available to others at once.
#[test]
fn sigterm_ends_a_program_whose_handler_never_returns() {
    let place = Place::empty();
    let mut program = Program::start_with_grace(&place, 50);
    // Waiting for a child closes its standard input, and then the handler would return.
    let _open = program.child.stdin.take();
    program.signal("-TERM");
    let status = program.ends();
    assert!(status.success(), "{status}");
    let claims = program.claims();
    assert_eq!(claims.len(), 3);
    assert!(claims.iter().all(|row| row.session.is_none() && row.attempts == 0), "{claims:?}");
    let sessions = Session::open(&place.url()).unwrap().sessions().unwrap();
    let left = &sessions[0].1;
    assert!(left.stopped.is_some());
    assert_eq!(left.hanging.iter().map(|run| run.handler.as_str()).collect::<Vec<_>>(), [HANDLER]);
}

/// The program in the child process. Returns at once without the variable `STORE`, so it does nothing in a normal test
/// run.
#[test]
fn child() {
    let Ok(url) = std::env::var(STORE) else { return };
    let session = Session::builder(&url).config(config()).open().unwrap();
    let handler = Handler::from_fn::<Ping>(HANDLER, |ctx| {
        println!("handling {}", ctx.event.n);
        std::io::stdin().read_to_end(&mut Vec::new())?;
        Ok(())
    });
    session.run(vec![handler], vec![]).unwrap();
}
