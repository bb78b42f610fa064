//! Tests on real files and in real time: threads, processes, a shared store.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace::{Config, Session};
use millrace_session::model::{Batch, Durability, Offset, Op, Partition, TopicKey};
use millrace_stores::{StoreOptions, open_shared};

use crate::words::*;

struct File(tempfile::TempDir);

impl File {
    fn new() -> File {
        File(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("sqlite:///{}", self.0.path().join("app.db").display())
    }
}

#[test]
fn what_was_committed_is_there_after_opening_again() {
    let file = File::new();
    let seen = Seen::default();
    {
        let session = Session::open(&file.url()).unwrap();
        session.ensure(paid(1)).unwrap();
        assert_eq!(session.commit_with(PaymentDone { order: 1 }).unwrap(), Some(1));
    }
    let session = Session::open(&file.url()).unwrap();
    assert_eq!(session.get::<Payment>(1_u64).unwrap().unwrap().status, "completed");
    session.run_until_idle(vec![noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    session.run_until_idle(vec![noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    assert_eq!(seen.all(), [r#"payments {"order":1}"#]);
}

#[test]
fn a_chain_runs_through_threads_and_commits_once() {
    let file = File::new();
    let config = Config { handler_concurrency: 4, ..Config::default() };
    let session = Session::builder(&file.url()).config(config).open().unwrap();
    let seen = Seen::default();
    let pays = on::<OrderPlaced>("pays", |ctx| {
        ctx.ensure(paid(ctx.event.order))?;
        ctx.commit_with(PaymentDone { order: ctx.event.order })?;
        Ok(())
    });
    session.publish_all((0..200).map(|order| OrderPlaced { order })).unwrap();
    session.run_until_idle(vec![pays, noting::<PaymentDone>("payments", &seen)], vec![]).unwrap();
    assert_eq!(seen.len(), 200);
    assert_eq!(session.query::<Payment>().count().unwrap(), 200);
    assert_eq!(session.dead_letters().unwrap(), []);
}

#[test]
fn commits_of_this_process_and_of_others_wake_a_waiting_session() {
    let file = File::new();
    // With an hour between polls, only a wake-up can be this fast.
    let config = Config { event_poll_interval_ms: 3_600_000, ..Config::default() };
    let session = Session::builder(&file.url()).config(config).open().unwrap();
    let (sender, handled) = std::sync::mpsc::channel();
    let handler = on::<Ping>("pings", move |ctx| Ok(sender.send(ctx.event.n)?));
    let running = session.spawn(vec![handler], vec![]).unwrap();
    session.publish(Ping { n: 0 }).unwrap();
    assert_eq!(handled.recv().unwrap(), 0);
    session.publish(Ping { n: 1 }).unwrap();
    assert_eq!(handled.recv().unwrap(), 1);
    // A second handle on the file knows nothing of the first, like another process.
    let other = Session::open(&file.url()).unwrap();
    other.publish(Ping { n: 2 }).unwrap();
    assert_eq!(handled.recv().unwrap(), 2);
    running.stop().unwrap();
    let stopped = session.sessions().unwrap();
    assert!(stopped[0].1.stopped.is_some());
}

/// A session that catches up reads the commits of others in limited steps, and commits without events count too. An
/// event behind more such commits than one step reads must still be found at once.
#[test]
fn an_event_behind_many_commits_without_events_is_seen() {
    const TRIMS: u64 = 1100;
    let file = File::new();
    // The session is woken only by commits of this process.
    let config = Config { wake_poll_ms: 3_600_000, event_poll_interval_ms: 3_600_000, ..Config::default() };
    let session = Session::builder(&file.url()).config(config).open().unwrap();
    session.publish_all((0..TRIMS).map(|order| OrderPlaced { order })).unwrap();
    session.publish(Ping { n: 1 }).unwrap();
    let (seen, url, other_url) = (Seen::default(), file.url(), file.url().parse().unwrap());
    let (notes, within) = (seen.clone(), session.clone());
    let handler = on::<Ping>("pings", move |ctx| {
        notes.add(ctx.event.n.to_string());
        if ctx.event.n == 1 {
            let other = open_shared(&other_url, &StoreOptions::default())?.store;
            let stream = TopicKey::parse("default/order.placed")?.stream(Partition(0));
            for start in 2..TRIMS {
                let trim = Op::Trim { stream: stream.clone(), start: Offset(start) };
                let batch = Batch {
                    nonce: start,
                    durability: Durability::Memory,
                    ops: vec![trim],
                    ..Batch::default()
                };
                other.commit(&[batch])?;
            }
            Session::open(&url)?.publish(Ping { n: 2 })?;
            within.publish(PaymentDone { order: 1 })?;
        }
        Ok(())
    });
    session.run_until_idle(vec![handler], vec![]).unwrap();
    assert_eq!(seen.all(), ["1", "2"]);
}

#[test]
fn one_session_serves_many_threads() {
    let file = File::new();
    let session = Session::open(&file.url()).unwrap();
    let handled = Arc::new(AtomicUsize::new(0));
    let count = handled.clone();
    let handler = on::<Ping>("counts", move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let running = session.spawn(vec![handler], vec![]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let session = session.clone();
            scope.spawn(move || {
                for n in 0..25 {
                    session.publish(Ping { n: thread * 25 + n }).unwrap();
                }
            });
        }
    });
    while handled.load(Ordering::SeqCst) < 200 {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.stop().unwrap();
    assert_eq!(handled.load(Ordering::SeqCst), 200);
}

#[test]
fn the_stop_handle_ends_run() {
    let session = Session::open("memory:").unwrap();
    session.publish(Ping { n: 1 }).unwrap();
    let seen = Seen::default();
    session
        .run_with(vec![noting::<Ping>("pings", &seen)], vec![], |stop| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                stop.stop();
            });
        })
        .unwrap();
    assert_eq!(seen.len(), 1);
}

const CHILD_STORE: &str = "MILLRACE_TEST_CHILD_STORE";
const CHILDREN: u64 = 8;
const EACH: u64 = 40;

/// Eight processes publish, handle and commit on one file at the same time. None of them ever sees a locked database.
#[test]
fn eight_processes_share_a_file() {
    let file = File::new();
    let children: Vec<_> = (0..CHILDREN)
        .map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "files::child", "--nocapture", "--test-threads=1"])
                .env(CHILD_STORE, format!("{number} {}", file.url()))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("database is locked"), "{said}");
    }
    let session = Session::open(&file.url()).unwrap();
    session.run_until_idle(vec![pays()], vec![]).unwrap();
    assert_eq!(session.query::<Payment>().count().unwrap(), CHILDREN * EACH);
    assert_eq!(session.dead_letters().unwrap(), []);
    let commits = session.state().list_commits(1000, millrace::StateCommit(0)).unwrap();
    assert_eq!(commits.len() as u64, CHILDREN * EACH, "every payment was committed once");
}

fn pays() -> millrace::Handler {
    on::<OrderPlaced>("pays", |ctx| {
        ctx.ensure(paid(ctx.event.order))?;
        ctx.commit_with(PaymentDone { order: ctx.event.order })?;
        Ok(())
    })
}

/// Runs in the child processes of `eight_processes_share_a_file`. Returns at once without the variable `CHILD_STORE`,
/// so it does nothing in a normal test run.
#[test]
fn child() {
    let Ok(given) = std::env::var(CHILD_STORE) else { return };
    let (number, url) = given.split_once(' ').unwrap();
    let number: u64 = number.parse().unwrap();
    let config = Config { handler_concurrency: 2, ..Config::default() };
    let session = Session::builder(url).config(config).open().unwrap();
    let running = session.spawn(vec![pays()], vec![]).unwrap();
    for n in 0..EACH {
        session.publish(OrderPlaced { order: number * EACH + n }).unwrap();
    }
    while session.query::<Payment>().count().unwrap() < EACH {
        std::thread::sleep(Duration::from_millis(10));
    }
    running.stop().unwrap();
}
