//! Retention, and manual operations.

mod harness;

use harness::*;
use millrace_claims::*;
use millrace_model::*;
use millrace_store::Store;

const DAY: u64 = 24 * 3600 * 1000;

fn keeping() -> WorkerConfig {
    WorkerConfig {
        retention_rows_max: 7,
        alone: true,
        retention_interval_ms: 3_600_000,
        ..WorkerConfig::default()
    }
}

#[test]
fn finished_events_go_after_their_time_and_their_rows_with_them() {
    let mut harness = Harness::new();
    harness.join("a", keeping(), vec![handler("m:h", "t"), handler("m:i", "t")], Vec::new());
    for n in 0..20 {
        harness.publish(out("t", &n.to_string()));
    }
    assert_eq!(harness.pass_working(6 * DAY), 40);
    assert_eq!((harness.events("t").len(), harness.endings().len()), (20, 40));
    harness.pass_working(DAY + 3 * 3_600_000);
    assert_eq!((harness.events("t").len(), harness.endings().len()), (0, 0));
}

#[test]
fn nothing_goes_that_a_handler_has_not_finished() {
    let mut harness = Harness::new();
    harness.join("a", keeping(), vec![handler("m:h", "t")], Vec::new());
    harness.publish(out("t", "1"));
    harness.ok("a");
    harness.publish(out("t", "2"));
    harness.crash("a");
    harness.publish(out("t", "3"));
    harness.join("b", keeping(), vec![], Vec::new());
    harness.pass(20 * DAY);
    assert_eq!(harness.payloads("t"), ["2", "3"]);
    // A handler that has not looked at a stream yet needs all of it.
    let (other, batch) = (HandlerId::new("m:gone").unwrap(), Batch::default());
    let row = HandlerRow { topic: "u".into(), registered: START, paused: false };
    let key = keys::handler(&Namespace::default(), &other);
    harness.publish(out("u", "1"));
    let ops = vec![Op::Put { space: Space::Handlers, key, value: row.encode() }];
    harness.store.commit(&[Batch { ops, ..batch }]).unwrap();
    harness.pass(20 * DAY);
    assert_eq!(harness.payloads("u"), ["1"]);
}

fn sweep_of(harness: &Harness, rows_max: usize) -> Sweep {
    Sweep::new(SweepRule {
        namespace: Namespace::default(),
        now: harness.now.wall,
        events_before: harness.now.wall,
        unfinished_too: false,
        own_retention: true,
        dead_letters_before: None,
        sessions_before: Timestamp(0),
        rows_max,
    })
}

#[test]
fn a_claim_that_moves_while_retention_looks_keeps_its_event() {
    let mut harness = Harness::new();
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.pass(60_000);
    // Both events are claimed. The first one's lease ends later, so its claim comes second in the table.
    let (id, stream) = (HandlerId::new("m:h").unwrap(), key("t").stream(Partition(0)));
    let claim = |due: u64, offset: u64| {
        let row = ClaimRow { due: Timestamp(due), ..ClaimRow::default() };
        Ticket { handler: id.clone(), stream: stream.clone(), offset: Offset(offset), row }
    };
    let row = HandlerRow { topic: "t".into(), registered: START, paused: false };
    let handlers = keys::handler(&Namespace::default(), &id);
    let ops = vec![
        Op::Put { space: Space::Handlers, key: handlers, value: row.encode() },
        Op::Put {
            space: Space::Lanes,
            key: keys::lane(&id, &stream, None),
            value: LaneRow::from_now(Offset(3)).encode(),
        },
        claim(100, 2).put(),
        claim(200, 1).put(),
    ];
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    let mut sweep = sweep_of(&harness, 1);
    let mut moved = false;
    let swept = loop {
        match sweep.step() {
            SweepStep::Read(query) => {
                sweep.on_read(harness.read(&query));
                // The claim is released before it is read, and now comes before the other one.
                let claims = matches!(query, ReadQuery::Rows { space: Space::Claims, .. });
                if claims && !std::mem::replace(&mut moved, true) {
                    let ops = vec![claim(200, 1).delete(), claim(50, 1).put()];
                    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
                }
            }
            SweepStep::Commit(batch) => assert!(harness.store.commit(&[batch]).is_ok()),
            SweepStep::Done(swept) => break swept,
        }
    };
    assert!(moved);
    assert_eq!((swept.events, harness.payloads("t").len()), (0, 2));
}

#[test]
fn a_handler_that_comes_while_retention_looks_gets_what_was_there() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.ok("a");
    harness.pass(60_000);
    let mut sweep = sweep_of(&harness, 100);
    let mut refusals = 0;
    let swept = loop {
        match sweep.step() {
            SweepStep::Read(query) => sweep.on_read(harness.read(&query)),
            SweepStep::Commit(batch) => {
                if refusals == 0 {
                    harness.join("b", config(), vec![handler("m:new", "t")], Vec::new());
                }
                let outcome = harness.store.commit(&[batch]).unwrap().remove(0);
                if matches!(outcome, Outcome::Refused(_)) {
                    refusals += 1;
                    sweep.refused();
                }
            }
            SweepStep::Done(swept) => break swept,
        }
    };
    assert_eq!((refusals, swept.events), (1, 0), "on the second read it was there to be asked");
    assert_eq!(harness.payloads("t"), ["1"]);
    harness.fail("b");
    harness.pass(60_000);
    assert_eq!(harness.ok("b").attempt, 2, "and a second attempt finds it, too");
}

#[test]
fn a_handler_with_too_many_open_claims_keeps_everything() {
    let mut harness = Harness::with(vec![handler("m:h", "t")]);
    harness.publish(out("t", "1"));
    harness.ok("a");
    harness.pass(60_000);
    // These claims are on a topic that the handler took before. They say nothing about this one, but the next row,
    // which is not read, might.
    let (id, stream) = (HandlerId::new("m:h").unwrap(), key("u").stream(Partition(0)));
    let claim = |offset| Ticket {
        handler: id.clone(),
        stream: stream.clone(),
        offset: Offset(offset),
        row: ClaimRow { due: Timestamp(u64::MAX >> 16), ..ClaimRow::default() },
    };
    let ops = (1..=50_000).map(|offset| claim(offset).put()).collect();
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    assert_eq!(swept(&harness).events, 0);
    assert_eq!(harness.payloads("t"), ["1"]);
    let ops = vec![claim(50_000).delete()];
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    assert_eq!(swept(&harness).events, 1);
    assert_eq!(harness.payloads("t"), [""; 0]);
}

/// A whole sweep, without anything else happening.
fn swept(harness: &Harness) -> Swept {
    let mut sweep = sweep_of(harness, 1000);
    loop {
        match sweep.step() {
            SweepStep::Read(query) => sweep.on_read(harness.read(&query)),
            SweepStep::Commit(batch) => assert!(harness.store.commit(&[batch]).is_ok()),
            SweepStep::Done(swept) => return swept,
        }
    }
}

#[test]
fn nothing_goes_that_a_group_has_not_committed() {
    let mut harness = Harness::new();
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    let group = Group::new("g").unwrap();
    let cursor = CursorRow { committed: Offset(1), delivered: Offset(2), ..CursorRow::default() };
    let key = keys::cursor(&key("t").stream(Partition(0)), &group);
    let ops = vec![Op::Put { space: Space::Cursors, key, value: cursor.encode() }];
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    harness.join("a", keeping(), vec![], Vec::new());
    harness.pass(20 * DAY);
    assert_eq!(harness.payloads("t"), ["2"]);
}

#[test]
fn what_nobody_has_asked_for_waits_for_its_handler() {
    let mut harness = Harness::new();
    harness.publish(out("t", "1"));
    harness.publish(out("t", "2"));
    harness.join("a", keeping(), vec![handler("m:other", "u")], Vec::new());
    harness.pass(20 * DAY);
    assert_eq!(harness.payloads("t"), ["1", "2"], "nobody has handled it: nothing is finished");
    assert_eq!(swept(&harness).events, 0, "nor does a cleanup by hand take it");
    harness.join("b", keeping(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(harness.pass_working(2 * DAY), 2, "the handler that comes late finds everything");
    assert_eq!(harness.payloads("t"), [""; 0], "and then it goes");
}

/// Reports of dead letters are written whenever a handler gives up, and most programs have no handler for them.
#[test]
fn events_about_dead_letters_are_not_kept_for_a_handler_that_never_comes() {
    let mut harness = Harness::new();
    harness.join(
        "a",
        WorkerConfig { event_max_attempts: 1, ..keeping() },
        vec![handler("m:h", "t")],
        Vec::new(),
    );
    harness.publish(out("t", "1"));
    harness.fail("a");
    harness.pass(6 * DAY);
    assert_eq!(harness.events("event.dead_letter").len(), 1);
    harness.pass(2 * DAY);
    assert_eq!((harness.events("event.dead_letter").len(), harness.rows(Space::DeadLetters).len()), (0, 1));
}

#[test]
fn a_topics_own_retention_wins() {
    let mut harness = Harness::new();
    harness.publish(out("t", "1"));
    let config = TopicConfig { partitions: 1, retention_ms: Some(30 * DAY), ..TopicConfig::default() };
    let (space, value) = (Space::Topics, TopicRow { config, incarnation: 1, ..TopicRow::default() }.encode());
    let ops = vec![Op::Put { space, key: keys::topic(&key("t")), value }];
    harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    harness.join("a", keeping(), vec![], Vec::new());
    harness.pass(20 * DAY);
    assert_eq!(harness.events("t").len(), 1);
    harness.pass(11 * DAY);
    assert_eq!(harness.events("t").len(), 0);
}

#[test]
fn rows_of_sessions_long_gone_are_removed() {
    let mut harness = Harness::with(vec![]);
    harness.crash("a");
    harness.join("b", keeping(), vec![], Vec::new());
    harness.pass(8 * DAY);
    let left: Vec<String> = harness.rows(Space::Sessions).into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, ["default/b"]);
}

#[test]
fn a_dead_letter_is_published_again_once_as_a_new_event() {
    let mut harness = Harness::new();
    let config = WorkerConfig { event_max_attempts: 1, ..config() };
    harness.join("a", config, vec![handler("m:h", "t")], Vec::new());
    let id = harness.publish(OutEvent { key: Some("k".into()), ..out("t", "1") });
    harness.fail("a");
    let letter = harness.letter();
    let (namespace, topics) = (Namespace::default(), Topics::default());
    let make = |nonce| letter.publish_again(&namespace, &topics, START, nonce).unwrap();
    let ((new, first), (_, second)) = (make(77), make(78));
    let outcomes = harness.store.commit(&[first, second]).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Done(_), Outcome::Refused(_)]), "{outcomes:?}");
    assert!(harness.rows(Space::DeadLetters).is_empty());
    harness.news();
    let run = harness.ok("a");
    let body = &run.event.body;
    assert_eq!((run.attempt, &run.event.id, body.key.as_deref()), (1, &new, Some("k")));
    assert_eq!(body.lineage, Lineage::default());
    assert_eq!(body.headers.as_ref().unwrap().get(REPLAYED_FROM), Some(id.to_string()));
}

#[test]
fn any_event_is_published_again_with_its_headers() {
    let mut harness = Harness::new();
    let headers = [("a".to_owned(), "b".to_owned())].into();
    harness.publish(OutEvent { headers: Some(headers), ..out("t", "1") });
    let event = harness.events("t").remove(0);
    let (id, batch) = publish_again(&Namespace::default(), &Topics::default(), &event, START, 5).unwrap();
    harness.store.commit(&[batch]).unwrap();
    let copy = harness.events("t").remove(1);
    assert!(copy.id == id && copy.id != event.id);
    let headers = copy.body.headers.as_ref().unwrap().to_map();
    assert_eq!((headers["a"].as_str(), &headers[REPLAYED_FROM]), ("b", &event.id.to_string()));
}

#[test]
fn a_forgotten_handler_no_longer_holds_events_back() {
    let mut harness = Harness::with(vec![handler("m:h", "t"), handler("m:keeps", "t")]);
    for n in 0..30 {
        harness.publish(out("t", &n.to_string()));
    }
    harness.crash("a");
    let mut forget = Forget::new(Namespace::default(), HandlerId::new("m:h").unwrap(), 7);
    loop {
        let ops = match forget.step() {
            ForgetStep::Done => break,
            ForgetStep::Commit(ops) => ops,
            ForgetStep::Read(ReadQuery::Rows { space, from, to, rows_max }) => {
                let range = millrace_store::KeyRange { from, to: Some(to) };
                let rows = harness.store.scan(space, &range, rows_max).unwrap();
                let rows: Vec<_> = rows.into_iter().map(|row| (row.key, row.value)).collect();
                forget.on_read(&rows)
            }
            other => panic!("{other:?}"),
        };
        harness.store.commit(&[Batch { ops, ..Batch::default() }]).unwrap();
    }
    for space in [Space::Handlers, Space::Lanes, Space::Claims] {
        let rows = harness.rows(space);
        assert!(!rows.is_empty() && rows.iter().all(|(key, _)| key.contains("m:keeps")), "{rows:?}");
    }
}

#[test]
fn a_new_handler_with_a_large_backlog_is_told_of_once() {
    let mut harness = Harness::new();
    for n in 0..5 {
        harness.publish(out("t", &n.to_string()));
    }
    let backlogs = |harness: &Harness| -> Vec<(usize, u64)> {
        let of = |note: &Note| match note {
            Note::Backlog { handler, events } => Some((*handler, *events)),
            _ => None,
        };
        harness.notes.iter().filter_map(of).collect()
    };
    let warned = || WorkerConfig { backlog_warn_events: 5, ..config() };
    let from_now = HandlerSpec { from: From::Now, ..handler("m:now", "t") };
    harness.join("a", warned(), vec![from_now, handler("m:h", "t"), handler("m:other", "u")], Vec::new());
    assert_eq!(backlogs(&harness), [(1, 5)]);
    harness.join("b", warned(), vec![handler("m:h", "t")], Vec::new());
    assert_eq!(backlogs(&harness).len(), 1, "it has been seen by now");
    harness.join(
        "c",
        WorkerConfig { backlog_warn_events: 6, ..config() },
        vec![handler("m:i", "t")],
        Vec::new(),
    );
    assert_eq!(backlogs(&harness).len(), 1, "a small backlog is none");
}
