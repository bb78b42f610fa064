//! Read, decide, write: no change is lost when others write at the same time. Tests handlers on virtual time and on
//! threads, and transactions and updates outside of handlers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{
    Config, Entity, Event, Handler, HandlerContext, HandlerResult, Identity, Relation, Result, Session,
    SessionError, Simulation, StateError, Stored,
};
use serde::{Deserialize, Serialize};

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Visit {
    n: u64,
}

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Counted {
    n: u64,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Counter {
    #[key]
    name: String,
    n: u64,
}

#[derive(Relation, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[relation(left = Counter, right = Counter)]
struct Follows {
    #[left_key]
    left: String,
    #[right_key]
    right: String,
    n: u64,
}

fn counter(name: &str, n: u64) -> Counter {
    Counter { name: name.to_owned(), n }
}

fn plus_one(old: Option<Counter>) -> Counter {
    counter("c", old.map_or(0, |old| old.n) + 1)
}

fn set(session: &Session, n: u64) {
    session.ensure(counter("c", n)).unwrap();
    session.commit().unwrap();
}

fn stored(session: &Session) -> Option<u64> {
    session.get::<Counter>("c").unwrap().map(|counter| counter.n)
}

fn is_conflict<T: std::fmt::Debug>(result: &Result<T>) -> bool {
    let counted = Identity::Entity { type_name: "Counter".into(), key: "c".into() };
    matches!(result, Err(SessionError::Conflict { identity }) if *identity == counted)
}

/// Notes of what handlers did, in order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Publishes one event and runs the handler until the event has ended.
fn handle(
    prepare: impl FnOnce(&Session),
    handler: impl Fn(&mut HandlerContext<Visit>, &Session) -> HandlerResult + Send + Sync + 'static,
) -> Simulation {
    let sim = Session::open_simulated(7);
    prepare(&sim);
    sim.publish(Visit { n: 1 }).unwrap();
    // A separate session, so that its queued state does not become part of the handler's commit.
    let other: Session = (*sim.beside()).clone();
    let handler = Handler::from_fn::<Visit>("h", move |ctx| handler(ctx, &other));
    sim.start(vec![handler], vec![]).unwrap();
    sim.advance(Duration::from_secs(3600)).unwrap();
    sim
}

/// Regression test: without conflict checks, 500 increments ended at 75.
#[test]
fn five_hundred_increments_at_concurrency_eight_are_five_hundred() {
    let session = Session::open("memory:").unwrap();
    let session =
        session.to_builder().config(Config { handler_concurrency: 8, ..Config::default() }).open().unwrap();
    session.publish_all((0..500).map(|n| Visit { n })).unwrap();
    let handler = Handler::from_fn::<Visit>("count", |ctx| {
        let old = ctx.get::<Counter>("c")?.map(Stored::into_inner);
        ctx.ensure(plus_one(old))?;
        ctx.commit()?;
        Ok(())
    });
    session.run_until_idle(vec![handler], vec![]).unwrap();
    assert_eq!(stored(&session), Some(500));
}

#[test]
fn a_run_that_read_what_somebody_changed_is_run_again_as_the_same_attempt() {
    let seen = Seen::default();
    let notes = seen.clone();
    let sim = handle(
        |session| set(session, 10),
        move |ctx, other| {
            let old = ctx.get::<Counter>("c")?.map(Stored::into_inner);
            notes.add(format!("attempt {} reads {}", ctx.meta().attempt, old.as_ref().unwrap().n));
            if old.as_ref().unwrap().n == 10 {
                set(other, 20);
            }
            ctx.emit(Counted { n: 1 })?;
            ctx.ensure(plus_one(old))?;
            let committed = ctx.commit();
            if is_conflict(&committed) {
                // After a conflict the run is over: it cannot write any more, and returning success changes nothing.
                ctx.ensure(counter("other", 1))?;
                assert!(is_conflict(&ctx.commit()) && is_conflict(&ctx.commit_and_ack()));
            }
            Ok(())
        },
    );
    assert_eq!(seen.all(), ["attempt 1 reads 10", "attempt 1 reads 20"]);
    assert_eq!(stored(&sim), Some(21));
    assert!(sim.get::<Counter>("other").unwrap().is_none());
}

#[test]
fn what_was_found_missing_must_still_be_missing() {
    let sim = handle(
        |_| {},
        |ctx, other| {
            let old = ctx.get::<Counter>("c")?.map(Stored::into_inner);
            if old.is_none() {
                set(other, 5);
            }
            ctx.ensure(plus_one(old))?;
            ctx.commit()?;
            Ok(())
        },
    );
    assert_eq!(stored(&sim), Some(6));
}

/// Checks for each kind of read whether a commit checks it for conflicts.
#[test]
fn exactly_these_reads_count() {
    type Read = fn(&HandlerContext<Visit>) -> Result<()>;
    let reads: [(&str, bool, Read); 9] = [
        ("get", true, |ctx| ctx.get::<Counter>("c").map(drop)),
        ("state", true, |ctx| Ok(ctx.state().get::<Counter>("c").map(drop)?)),
        ("collect", true, |ctx| Ok(ctx.query::<Counter>().collect().map(drop)?)),
        ("first", true, |ctx| Ok(ctx.query::<Counter>().first().map(drop)?)),
        ("pages", true, |ctx| Ok(ctx.query::<Counter>().pages(1).try_for_each(|page| page.map(drop))?)),
        ("endpoints", true, |ctx| Ok(ctx.query::<Follows>().with_endpoints().collect().map(drop)?)),
        ("unchecked", false, |ctx| Ok(ctx.state().unchecked().get::<Counter>("c").map(drop)?)),
        ("as of", false, |ctx| Ok(ctx.query::<Counter>().as_of(ctx.state().head()?).collect().map(drop)?)),
        ("sum", false, |ctx| Ok(ctx.query::<Counter>().sum(|f| f.n).map(drop)?)),
    ];
    for (name, counts, read) in reads {
        let seen = Seen::default();
        let notes = seen.clone();
        let prepare = |session: &Session| {
            session.ensure(Follows { left: "c".into(), right: "c".into(), n: 1 }).unwrap();
            set(session, 1);
        };
        let sim = handle(prepare, move |ctx, other| {
            notes.add("run");
            read(ctx)?;
            if notes.all().len() == 1 {
                set(other, 2);
            }
            ctx.ensure(counter("c", 3))?;
            ctx.commit()?;
            Ok(())
        });
        assert_eq!(seen.all().len(), 1 + usize::from(counts), "{name}");
        assert_eq!(stored(&sim), Some(3), "{name}");
    }
}

#[test]
fn what_is_read_and_not_declared_is_not_checked() {
    let seen = Seen::default();
    let notes = seen.clone();
    let sim = handle(
        |session| set(session, 1),
        move |ctx, other| {
            notes.add("run");
            ctx.get::<Counter>("c")?;
            set(other, 2);
            ctx.ensure(counter("d", 1))?;
            ctx.commit()?;
            Ok(())
        },
    );
    assert_eq!((seen.all().len(), stored(&sim)), (1, Some(2)));
}

#[test]
fn the_first_read_of_a_run_counts_and_its_own_commits_are_known() {
    let seen = Seen::default();
    let notes = seen.clone();
    let sim = handle(
        |session| set(session, 1),
        move |ctx, other| {
            notes.add("run");
            let first = ctx.get::<Counter>("c")?.map(Stored::into_inner);
            if notes.all().len() == 1 {
                set(other, 10);
                // A second read does not refresh the value that the first read returned and the run used.
                ctx.get::<Counter>("c")?;
            }
            ctx.ensure(plus_one(first.clone()))?;
            ctx.commit()?;
            // Builds on what this run has written itself, without reading it again.
            ctx.ensure(counter("c", first.unwrap().n + 2))?;
            if notes.all().len() == 2 {
                set(other, 100);
            }
            ctx.commit()?;
            Ok(())
        },
    );
    // 10 by the other session, 11 by the second run, 100 by the other session, 101 and 102 by the third run.
    assert_eq!((seen.all().len(), stored(&sim)), (3, Some(102)));
}

#[test]
fn relations_are_checked_too() {
    let seen = Seen::default();
    let notes = seen.clone();
    let sim = handle(
        |_| {},
        move |ctx, other| {
            notes.add("run");
            let old = ctx.get_relation::<Follows>("a", "b", "")?;
            if old.is_none() {
                other.ensure(Follows { left: "a".into(), right: "b".into(), n: 5 })?;
                other.commit()?;
            }
            let n = old.map_or(0, |old| old.n) + 1;
            ctx.ensure(Follows { left: "a".into(), right: "b".into(), n })?;
            ctx.update_relation("a", "b", "", |old: Option<Follows>| {
                old.map(|old| Follows { n: old.n * 10, ..old })
            })?;
            ctx.commit()?;
            Ok(())
        },
    );
    let stored = sim.state().get_relation::<Follows>("a", "b", "").unwrap().unwrap();
    assert_eq!((seen.all().len(), stored.n), (2, 60));
}

#[test]
fn an_update_is_applied_to_what_stands_when_it_is_committed() {
    let seen = Seen::default();
    let notes = seen.clone();
    let sim = handle(
        |session| set(session, 1),
        move |ctx, other| {
            notes.add("run");
            ctx.update("c", plus_one)?;
            set(other, 50);
            ctx.update("c", |old: Option<Counter>| old.map(|old| counter("c", old.n * 2)))?;
            ctx.commit_and_ack()?;
            Ok(())
        },
    );
    assert_eq!((seen.all().len(), stored(&sim)), (1, Some(102)));
}

/// The function of an update runs between the read and the commit: the other session changes the entity at that moment.
#[test]
fn an_update_that_loses_the_race_is_applied_again_inside_the_commit() {
    for (faster, runs) in [(3, 1), (100, 1), (101, 2)] {
        let (seen, raced) = (Seen::default(), Arc::new(Mutex::new(0)));
        let (notes, count) = (seen.clone(), raced.clone());
        let sim = handle(
            |session| set(session, 0),
            move |ctx, other| {
                notes.add(format!("attempt {}", ctx.meta().attempt));
                let (other, count) = (other.clone(), count.clone());
                ctx.update("c", move |old: Option<Counter>| {
                    let mut count = count.lock().unwrap();
                    if *count < faster {
                        *count += 1;
                        set(&other, *count * 1000);
                    }
                    plus_one(old)
                })?;
                ctx.commit()?;
                Ok(())
            },
        );
        assert_eq!(stored(&sim), Some(faster * 1000 + 1));
        assert_eq!(seen.all(), vec!["attempt 1"; runs], "update_retries_max is 100");
    }
}

#[test]
fn an_update_may_retract_and_must_keep_its_key() {
    let sim = handle(
        |session| set(session, 1),
        |ctx, _| {
            ctx.update("c", |_: Option<Counter>| None)?;
            ctx.commit()?;
            ctx.update("c", |_: Option<Counter>| counter("d", 1))?;
            let refused = ctx.commit();
            let kept = matches!(&refused, Err(SessionError::State(StateError::UpdateChangedKey { .. })));
            assert!(kept, "{refused:?}");
            Ok(())
        },
    );
    assert_eq!(stored(&sim), None);
    assert!(sim.get::<Counter>("d").unwrap().is_none());
}

#[test]
fn nothing_is_written_after_the_last_commit_and_no_failure_repeats_it() {
    let seen = Seen::default();
    let notes = seen.clone();
    let sim = handle(
        |_| {},
        move |ctx, _| {
            notes.add("run");
            ctx.update("c", plus_one)?;
            ctx.emit(Counted { n: 1 })?;
            assert_eq!(ctx.commit_and_ack()?, Some(1));
            let refusals = [
                ctx.ensure(counter("d", 1)).map(|()| None),
                ctx.retract::<Counter>("c").map(|()| None),
                ctx.update("c", plus_one).map(|()| None),
                ctx.emit(Counted { n: 2 }).map(|()| None),
                ctx.commit(),
                ctx.commit_with(Counted { n: 3 }),
                ctx.commit_and_ack(),
            ];
            for refused in refusals {
                assert!(matches!(refused, Err(SessionError::Acknowledged)), "{refused:?}");
            }
            notes.add(format!("still reads {}", ctx.get::<Counter>("c")?.unwrap().n));
            Err("after the end".into())
        },
    );
    assert_eq!(seen.all(), ["run", "still reads 1"]);
    assert_eq!(stored(&sim), Some(1));
}

#[test]
fn what_a_plain_commit_did_is_repeated_by_a_retry_and_what_the_last_commit_did_is_not() {
    for (last, expected) in [(false, 2), (true, 1)] {
        let seen = Seen::default();
        let notes = seen.clone();
        let sim = handle(
            |_| {},
            move |ctx, _| {
                notes.add("run");
                ctx.update("c", plus_one)?;
                if last {
                    ctx.commit_and_ack()?
                } else {
                    ctx.commit()?
                };
                if notes.all().len() == 1 { Err("after the commit".into()) } else { Ok(()) }
            },
        );
        assert_eq!((stored(&sim), seen.all().len() as u64), (Some(expected), expected));
    }
}

#[test]
fn a_transaction_commits_only_what_still_stands() {
    let session = Session::open("memory:").unwrap();
    set(&session, 1);
    let mut transaction = session.transaction();
    assert_eq!(transaction.get::<Counter>("c").unwrap().unwrap().n, 1);
    transaction.ensure(counter("c", 2)).unwrap();
    set(&session, 10);
    assert!(is_conflict(&transaction.commit_with(Counted { n: 1 })));
    assert_eq!(transaction.commit().unwrap(), None, "a conflict leaves nothing declared");
    let old = transaction.get::<Counter>("c").unwrap().map(Stored::into_inner);
    transaction.ensure(plus_one(old)).unwrap();
    transaction.commit().unwrap().unwrap();
    // The transaction knows what it has committed itself, so there is no conflict.
    transaction.ensure(counter("c", 12)).unwrap();
    transaction.commit().unwrap().unwrap();
    transaction.ensure(counter("c", 13)).unwrap();
    set(&session, 20);
    assert!(is_conflict(&transaction.commit()));
    assert_eq!(stored(&session), Some(20));
    // A session's own commit, unlike a transaction's, does not check for conflicts.
    session.get::<Counter>("c").unwrap();
    set(&session.beside(), 30);
    session.ensure(counter("c", 31)).unwrap();
    session.commit().unwrap().unwrap();
    assert_eq!(stored(&session), Some(31));
}

#[test]
fn updates_of_many_threads_are_all_there() {
    let session = Session::open("memory:").unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let session = session.beside();
            std::thread::spawn(move || {
                for _ in 0..50 {
                    session.update("c", plus_one).unwrap();
                    while let Err(error) = session.commit() {
                        assert!(matches!(error, SessionError::Conflict { .. }), "{error}");
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(stored(&session), Some(400));
}
