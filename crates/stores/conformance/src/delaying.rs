//! Delayed events: an id is taken from the moment its event is confirmed, whether the event still waits or is stored.

use millrace_model::{
    Appended, Batch, Check, Delay, DueEvent, DueRow, Durability, EventId, Op, Outcome, Space, TakenId,
    Timestamp, TopicConfig, TopicRow, keys,
};

use crate::Subject;
use crate::build::{append_id, batch, body, delete, drop_topic, put, stream, topic};
use millrace_store::{CommitNumber, KeyRange};

const MADE: u64 = 7;
const WINDOW_MS: u64 = 1000;

fn id_of(id: &str) -> EventId {
    EventId::parse(id).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the write of the topic's row by a process that drew the incarnation `incarnation`.
fn topic_row(incarnation: u64) -> Op {
    let config = TopicConfig { partitions: incarnation as u32, ..TopicConfig::default() };
    let value = TopicRow { config, incarnation, ..TopicRow::default() }.encode();
    Op::Put { space: Space::Topics, key: keys::topic(&topic("delays")), value }
}

fn made_anew(incarnation: u64) -> Vec<Op> {
    vec![delete(Space::Topics, &keys::topic(&topic("delays"))), topic_row(incarnation)]
}

fn delay_of(id: &str, due: u64, nonce: u64) -> Op {
    let (key, stream) = (keys::due(Timestamp(due), nonce, 0), stream("delays", 0));
    let row = DueRow::of(&stream, id_of(id), &body(id), Durability::Fsync, WINDOW_MS);
    Op::Delay(Delay {
        topic: topic("delays"),
        id: id_of(id),
        dedupe_window_ms: WINDOW_MS,
        due: Timestamp(due),
        key,
        row: Box::new(row),
    })
}

fn delay(now: u64, id: &str, due: u64) -> Batch {
    batch(now, vec![delay_of(id, due, now)])
}

fn bring_op(id: &str) -> Op {
    append_id(&stream("delays", 1), id, id, WINDOW_MS)
}

fn bring(now: u64, id: &str) -> Batch {
    batch(now, vec![bring_op(id)])
}

/// Returns the batch by which a mover appends the first delayed event once that is due.
fn moved(subject: &Subject, now: u64) -> Batch {
    let rows = subject.store().scan(Space::Due, &KeyRange::all(), 1);
    let rows = rows.unwrap_or_else(|error| panic!("{error}"));
    let event =
        DueEvent::read(&rows[0].key, &rows[0].value).unwrap_or_else(|| panic!("a row that can be read"));
    let mut ops = event.removal();
    ops.push(Op::Append(event.append()));
    Batch { checks: vec![event.waits(), event.topic_stands()], ..batch(now, ops) }
}

/// Returns of each answer: whether it is a duplicate, its offset, and when it is due.
fn seen(appended: &[Appended]) -> Vec<(bool, u64, Option<u64>)> {
    appended.iter().map(|one| (one.duplicate, one.offset.0, one.due.map(|due| due.0))).collect()
}

pub(super) fn a_delayed_event_takes_its_id(subject: &mut Subject) {
    subject.done(batch(1, vec![topic_row(MADE)]));
    assert_eq!(seen(&subject.done(delay(10, "a", 500))), [(false, 0, Some(500))]);
    for now in 11..14 {
        assert_eq!(seen(&subject.done(bring(now, "a"))), [(true, 0, Some(500))]);
        assert_eq!(seen(&subject.done(delay(now, "a", 900))), [(true, 0, Some(500))]);
        subject.maintain_all(100);
        subject.reopen();
    }
    assert_eq!(subject.table(Space::Due).len(), 1);
    assert!(subject.payloads(&stream("delays", 1)).is_empty());
    assert_eq!(seen(&subject.done(bring(14, "b"))), [(false, 1, None)]);
    assert_eq!(seen(&subject.done(moved(subject, 500))), [(false, 1, None)]);
    for now in 501..503 {
        assert_eq!(seen(&subject.done(bring(now, "a"))), [(true, 1, None)]);
        assert_eq!(seen(&subject.done(delay(now, "a", 900))), [(true, 1, None)]);
        subject.reopen();
    }
    assert!(subject.table(Space::Due).is_empty() && subject.table(Space::DueIds).is_empty());
}

pub(super) fn a_delayed_event_whose_id_is_stored_is_a_duplicate(subject: &mut Subject) {
    subject.done(batch(1, vec![topic_row(MADE)]));
    subject.done(bring(10, "a"));
    assert_eq!(seen(&subject.done(delay(11, "a", 500))), [(true, 1, None)]);
    assert!(subject.table(Space::Due).is_empty());
    assert_eq!(seen(&subject.done(delay(10 + WINDOW_MS + 1, "a", 5000))), [(false, 0, Some(5000))]);
}

pub(super) fn delays_and_appends_of_one_commit_see_one_another(subject: &mut Subject) {
    let ops =
        vec![topic_row(MADE), delay_of("a", 500, 1), bring_op("a"), bring_op("b"), delay_of("b", 500, 2)];
    let expected = [(false, 0, Some(500)), (true, 0, Some(500)), (false, 1, None), (true, 1, None)];
    assert_eq!(seen(&subject.done(batch(10, ops))), expected);
    assert_eq!(subject.table(Space::Due).len(), 1);
}

pub(super) fn an_id_is_free_when_nothing_waits_under_it(subject: &mut Subject) {
    subject.done(batch(1, vec![topic_row(MADE)]));
    subject.done(delay(10, "a", 500));
    // The topic is made anew: another incarnation of the same name.
    subject.done(batch(11, made_anew(8)));
    assert_eq!(seen(&subject.done(delay(11, "a", 600))), [(false, 0, Some(600))]);
    assert_eq!(seen(&subject.done(bring(12, "a"))), [(true, 0, Some(600))]);
    subject.done(batch(12, vec![drop_topic("delays")]));
    assert_eq!(seen(&subject.done(bring(13, "a"))), [(true, 0, Some(600))], "its row is the caller's");
    // The event's row was set aside (quarantined) and the row of its id was left behind.
    subject.done(batch(14, vec![delete(Space::Due, &keys::due(Timestamp(600), 11, 0))]));
    assert_eq!(seen(&subject.done(delay(15, "a", 700))), [(false, 0, Some(700))]);
    assert_eq!(seen(&subject.done(bring(16, "a"))), [(true, 0, Some(700))]);
    // Without a topic no delayed event can hold the id.
    subject.done(batch(17, vec![delete(Space::Topics, &keys::topic(&topic("delays")))]));
    assert_eq!(seen(&subject.done(bring(18, "a"))), [(false, 1, None)]);
}

/// Two processes that move delayed events at the same moment have both read the same row.
pub(super) fn of_two_movers_one_stores_the_event(subject: &mut Subject) {
    subject.done(batch(1, vec![topic_row(MADE)]));
    subject.done(delay(10, "a", 500));
    let (one, other) = (moved(subject, 500), moved(subject, 501));
    let outcomes = subject.commit(&[one, other.clone()]);
    assert!(matches!(&outcomes[0], Outcome::Done(_)), "{outcomes:?}");
    for outcome in [&outcomes[1], &subject.commit(&[other])[0]] {
        assert!(matches!(outcome, Outcome::Refused(refusal) if refusal.check == 0), "{outcome:?}");
    }
    assert_eq!(subject.payloads(&stream("delays", 0)), ["\"a\""]);
}

pub(super) fn a_delayed_event_belongs_to_the_topic_that_stood_when_it_was_confirmed(subject: &mut Subject) {
    // The batch brings a topic row of its own, from a process that does not know the topic; the stored row wins.
    subject.done(batch(1, vec![topic_row(MADE)]));
    let new = Op::PutNew {
        space: Space::Topics,
        key: keys::topic(&topic("delays")),
        value: TopicRow { incarnation: 99, ..TopicRow::default() }.encode(),
    };
    subject.done(batch(10, vec![new, delay_of("a", 500, 10)]));
    let late = moved(subject, 500);
    assert_eq!(late.checks[1], Check::Incarnation { topic: topic("delays"), incarnation: MADE });
    subject.done(batch(20, made_anew(8)));
    subject.reopen();
    let outcome = &subject.commit(&[late])[0];
    assert!(matches!(outcome, Outcome::Refused(refusal) if refusal.check == 1), "{outcome:?}");
    let gone = vec![delete(Space::Topics, &keys::topic(&topic("delays")))];
    subject.done(batch(21, gone));
    let outcome = &subject.commit(&[moved(subject, 500)])[0];
    assert!(matches!(outcome, Outcome::Refused(refusal) if refusal.check == 1), "{outcome:?}");
}

pub(super) fn a_topic_that_stands_keeps_its_incarnation(subject: &mut Subject) {
    let done = subject.all_done(batch(1, vec![topic_row(MADE)]));
    assert!(!done.incarnation_kept);
    subject.done(delay(10, "a", 500));
    let done = subject.all_done(batch(11, vec![topic_row(3)]));
    assert!(done.incarnation_kept);
    let key = keys::topic(&topic("delays"));
    let rows = subject.store().scan(Space::Topics, &KeyRange::all(), 9);
    let row = rows.unwrap_or_else(|error| panic!("{error}")).remove(0);
    let row = TopicRow::decode(&key, &row.value).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((row.incarnation, row.config.partitions), (MADE, 3), "new settings, the same topic");
    assert_eq!(seen(&subject.done(moved(subject, 500))), [(false, 1, None)]);
    // Rows of the table that hold no topic are written as they are.
    subject.done(batch(12, vec![put(Space::Topics, "suite/odd", "odd")]));
    assert!(!subject.all_done(batch(13, vec![put(Space::Topics, "suite/odd", "even")])).incarnation_kept);
}

pub(super) fn a_watcher_is_told_of_delayed_events(subject: &mut Subject) {
    let after = |subject: &Subject, number: CommitNumber| {
        let changes = subject.watch(number, 1000);
        assert!(changes.complete);
        (changes.last, changes.delayed, changes.runs.len())
    };
    subject.done(batch(1, vec![topic_row(MADE)]));
    subject.done(bring(2, "first"));
    let (start, delayed, _) = after(subject, CommitNumber(0));
    assert!(!delayed);
    subject.done(delay(10, "a", 500));
    let (one, delayed, runs) = after(subject, start);
    assert!(one > start && delayed && runs == 0);
    subject.done(delay(11, "a", 600));
    assert_eq!(after(subject, one), (one, false, 0), "a duplicate is no news");
    subject.done(batch(12, vec![delay_of("b", 700, 12), bring_op("c")]));
    subject.maintain_all(10);
    subject.reopen();
    let (two, delayed, runs) = after(subject, one);
    assert!(two > one && delayed && runs == 1);
    subject.done(moved(subject, 500));
    let (three, delayed, runs) = after(subject, two);
    assert!(three > two && !delayed && runs == 1);
    assert_eq!(after(subject, three), (three, false, 0));
}

fn taken(id: &str) -> Check {
    let (topic, id, dedupe_window_ms) = (topic("delays"), id_of(id), WINDOW_MS);
    Check::IdTaken(TakenId { topic, id, dedupe_window_ms })
}

pub(super) fn a_check_finds_the_ids_that_an_append_would_find(subject: &mut Subject) {
    subject.done(batch(1, vec![topic_row(MADE)]));
    subject.done(bring(10, "stored"));
    subject.done(delay(11, "waits", 500));
    let holds = |subject: &mut Subject, now: u64, check: Check| {
        let batch = Batch { checks: vec![check], ..batch(now, vec![bring_op("beside")]) };
        matches!(subject.commit(&[batch])[0], Outcome::Done(_))
    };
    assert!(holds(subject, 20, taken("stored")));
    assert!(!holds(subject, 20, taken("never")));
    assert!(holds(subject, 20, taken("waits")));
    assert!(!holds(subject, 11 + WINDOW_MS, taken("stored")), "outside the window");
    // A check sees the batches before its own in the same commit; a refused batch leaves nothing.
    let new = Batch { checks: vec![taken("first")], ..bring(30, "second") };
    let outcomes = subject.commit(&[bring(30, "first"), new]);
    assert!(matches!(outcomes[..], [Outcome::Done(_), Outcome::Done(_)]), "{outcomes:?}");
    let refused = Batch { checks: vec![taken("second"), taken("third")], ..bring(31, "fourth") };
    let Outcome::Refused(refusal) = &subject.commit(&[refused])[0] else { panic!("it was not refused") };
    assert_eq!((refusal.check, &refusal.found), (1, &None));
    assert!(!holds(subject, 32, taken("fourth")));
    subject.done(batch(40, made_anew(8)));
    assert!(!holds(subject, 40, taken("waits")), "of another topic of that name");
}
