//! Delayed events: written by sessions and handlers, moved by the session that wakes first.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;
use millrace_store::Store;

const MINUTE_MS: u64 = 60_000;
/// How late a delay may end, because processes agree on elapsed time only to a few milliseconds.
const LATE_MS: u64 = 10;

fn after(ms: u64, event: OutEvent) -> OutEvent {
    OutEvent { deliver_at: Some(DeliverAt::AfterMs(ms)), ..event }
}

fn at(at: Timestamp, event: OutEvent) -> OutEvent {
    OutEvent { deliver_at: Some(DeliverAt::At(at)), ..event }
}

/// Delays an event outside of the workers, and tells them about it as the shell does.
fn publish(harness: &mut Harness, event: OutEvent) -> Appended {
    publish_as(harness, event, None)
}

fn publish_as(harness: &mut Harness, event: OutEvent, id: Option<&str>) -> Appended {
    let id = id.map(|id| EventId::parse(id).expect("a sound harness"));
    let (namespace, topics, nonce) = (Namespace::default(), Topics::default(), harness.draw());
    let events = vec![OwnEvent { event, id }];
    let clock = (harness.now, &mut harness.elapsed);
    let changes = StateChanges::default();
    let batch = imperative_events(&config(), &namespace, &topics, changes, events, clock, nonce)
        .expect("a sound harness");
    let outcome = harness.store.commit(&[batch]).expect("a sound harness").remove(0);
    let Outcome::Done(done) = outcome else { panic!("{outcome:?}") };
    told(harness);
    done.appended[0].clone()
}

fn told(harness: &mut Harness) {
    for who in harness.workers.keys().copied().collect::<Vec<_>>() {
        harness.input(who, Input::Delayed);
    }
}

fn waiting_events(harness: &Harness) -> usize {
    harness.rows(Space::Due).len() + harness.rows(Space::DueIds).len()
}

#[test]
fn a_session_moves_what_is_due_and_its_handler_gets_it() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let start = harness.now.wall;
    let delayed = publish(&mut harness, after(MINUTE_MS, out("t", "1")));
    let due = delayed.due.unwrap();
    assert!(delayed.offset == Offset::ZERO && due >= start + MINUTE_MS, "{delayed:?}");
    harness.pass(MINUTE_MS - 1);
    assert_eq!((harness.payloads("t").len(), harness.waiting_runs("a")), (0, 0));
    harness.pass(LATE_MS + 1);
    let event = harness.events("t").remove(0);
    assert!(event.id == delayed.id && event.ts >= due && event.ts <= due + LATE_MS, "{event:?} {due}");
    assert_eq!((harness.waiting_runs("a"), waiting_events(&harness)), (1, 0));
    harness.ok("a");
}

#[test]
fn a_moment_of_the_wall_clock_is_waited_for() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let due = harness.now.wall + 5 * MINUTE_MS;
    assert_eq!(publish(&mut harness, at(due, out("t", "1"))).due, Some(due));
    let past = at(Timestamp(7), out("t", "2"));
    assert_eq!(publish(&mut harness, past).offset, Offset::FIRST, "a moment that is over does not wait");
    harness.pass(5 * MINUTE_MS - 1);
    assert_eq!(harness.payloads("t"), ["2"]);
    harness.pass(1);
    assert_eq!(harness.payloads("t"), ["2", "1"]);
}

#[test]
fn a_session_that_starts_later_finds_what_waits() {
    let mut harness = Harness::new();
    publish(&mut harness, after(MINUTE_MS, out("t", "1")));
    publish(&mut harness, after(10 * MINUTE_MS, out("t", "2")));
    harness.pass(2 * MINUTE_MS);
    harness.join("a", config(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(harness.payloads("t"), ["1"], "it was due while nobody ran");
    harness.crash("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(8 * MINUTE_MS + LATE_MS);
    assert_eq!(harness.payloads("t"), ["1", "2"]);
}

#[test]
fn of_two_sessions_that_wake_together_one_moves() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    for payload in ["1", "2", "3"] {
        publish(&mut harness, after(1000, out("t", payload)));
    }
    harness.hold = true;
    harness.pass(1020);
    let moves = |harness: &Harness| {
        let moves = |batch: &Batch| batch.ops.iter().any(|op| matches!(op, Op::Append(_)));
        harness.held.iter().filter(|(_, _, batch)| moves(batch)).count()
    };
    assert_eq!(moves(&harness), 2, "both have looked at the same rows");
    harness.release_commits();
    harness.pass(100);
    assert_eq!(
        (harness.payloads("t"), waiting_events(&harness)),
        (vec!["1".into(), "2".into(), "3".into()], 0)
    );
}

#[test]
fn many_rows_are_moved_in_bounded_commits() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    for n in 0..600 {
        publish(&mut harness, after(1000, out("t", &n.to_string())));
    }
    let large = "x".repeat(3 << 20);
    for _ in 0..3 {
        publish(&mut harness, after(1000, out("u", &large)));
    }
    let before = harness.commits;
    harness.hold = true;
    harness.pass(1010);
    harness.release_commits();
    harness.pass(1000);
    assert_eq!(
        (harness.payloads("t").len(), harness.payloads("u").len(), waiting_events(&harness)),
        (600, 3, 0)
    );
    assert!(harness.commits - before >= 5, "256 rows and 4 MiB at once: {}", harness.commits - before);
}

#[test]
fn an_event_of_a_deleted_topic_goes_and_one_of_its_successor_comes() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    publish(&mut harness, after(1000, out("t", "old")));
    publish(&mut harness, after(1000, out("other", "kept")));
    let key = keys::topic(&harness::key("t"));
    let ops = vec![Op::Delete { space: Space::Topics, key }, Op::Drop { topic: harness::key("t") }];
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    publish(&mut harness, after(1001, out("t", "new")));
    harness.pass(2000);
    assert_eq!((harness.payloads("t"), waiting_events(&harness)), (vec!["new".to_owned()], 0));
    assert_eq!(harness.payloads("other"), ["kept"], "a refused row does not take others with it");
}

#[test]
fn an_id_is_taken_from_the_moment_its_event_is_confirmed() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let first = publish_as(&mut harness, after(MINUTE_MS, out("t", "1")), Some("once"));
    for event in [out("t", "2"), after(5, out("t", "3"))] {
        let again = publish_as(&mut harness, event, Some("once"));
        assert_eq!((again.duplicate, again.due), (true, first.due));
    }
    assert_eq!(harness.pass_working(2 * MINUTE_MS), 1);
    let again = publish_as(&mut harness, after(5, out("t", "4")), Some("once"));
    assert_eq!((again.duplicate, again.due, again.offset), (true, None, Offset::FIRST));
    assert_eq!(harness.payloads("t"), ["1"]);
}

#[test]
fn handlers_delay_what_they_emit_and_commit() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    let run = harness.next_run("a");
    let changes = StateChanges { event: Some(after(2000, out("u", "committed"))), ..ensure("x", "{}") };
    harness.commit_run("a", &run, changes.clone()).unwrap();
    harness.finish("a", &run, failed("no luck"));
    harness.pass(700);
    let run = harness.next_run("a");
    harness.commit_run("a", &run, changes).unwrap();
    harness.finish("a", &run, Ok(vec![after(1000, out("u", "emitted"))]));
    harness.pass(999);
    assert!(harness.payloads("u").is_empty());
    harness.pass(2000);
    assert_eq!(
        (harness.payloads("u"), waiting_events(&harness)),
        (vec!["emitted".to_owned(), "committed".to_owned()], 0)
    );
    let event = &harness.events("u")[0];
    assert_eq!((event.body.lineage.depth, event.body.lineage.causation.is_some()), (1, true));
}

#[test]
fn a_step_of_the_wall_clock_moves_no_duration() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    publish(&mut harness, after(10 * MINUTE_MS, out("t", "1")));
    harness.pass(MINUTE_MS);
    harness.now.wall = harness.now.wall + 3_600_000;
    harness.pass(MINUTE_MS);
    assert!(harness.payloads("t").is_empty(), "an hour ahead");
    harness.now.wall = harness.now.wall.saturating_sub(3 * 3_600_000);
    harness.pass(MINUTE_MS);
    // The previous session stored how the clocks relate, so the next one is not misled either.
    harness.crash("a");
    harness.join("b", config(), vec![handler("m:h", "t")], Vec::new());
    harness.pass(7 * MINUTE_MS - 1000);
    assert!(harness.payloads("t").is_empty());
    harness.pass(1000 + LATE_MS);
    assert_eq!(harness.payloads("t"), ["1"]);
}

#[test]
fn a_row_that_cannot_be_read_is_set_aside_and_the_others_come() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    let put = |key: &str| Op::Put { space: Space::Due, key: key.to_owned(), value: "torn".into() };
    let ops = vec![put(&keys::due(Timestamp(5), 1, 2)), put("garbage")];
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    let due = harness.now.wall + 1000;
    publish(&mut harness, at(due, out("t", "1")));
    harness.pass(2000);
    assert_eq!((harness.payloads("t"), waiting_events(&harness)), (vec!["1".to_owned()], 0));
    let aside = harness.rows(Space::Kv).into_iter().filter(|(key, _)| key.starts_with("quarantine/due/"));
    assert_eq!(aside.count(), 2);
    assert_eq!(harness.notes.iter().filter(|note| matches!(note, Note::DueSetAside { .. })).count(), 2);
}

#[test]
fn an_event_too_far_ahead_is_refused() {
    let harness = Harness::new();
    let refusal = |event: OutEvent| {
        let changes = StateChanges { event: Some(event), ..StateChanges::default() };
        let clock = (harness.now, &mut Elapsed::default());
        imperative(&config(), &Namespace::default(), &Topics::default(), changes, clock, 1).map(drop)
    };
    let (far, limit) = (DELAY_MS_MAX + 1, DELAY_MS_MAX);
    let refused = Err(CommitError::DelayTooLong { delay_ms: far, limit });
    assert_eq!(refusal(after(far, out("t", "1"))), refused);
    assert_eq!(refusal(at(harness.now.wall + far, out("t", "1"))), refused);
    assert_eq!(refusal(after(limit, out("t", "1"))), Ok(()));
    // In the row of a delayed event, the payload's quotes are escaped once more.
    let quotes = OutEvent::new(name("t"), JsonText::from_value(&"\"".repeat(5 << 20)).unwrap());
    assert!(refusal(quotes.clone()).is_ok());
    assert!(matches!(refusal(after(5, quotes)), Err(CommitError::TooLarge { .. })));
}
