//! Dedupe: an id that clients bring to a topic twice within the window is stored once.

use millrace_model::{Appended, Batch, EventId, Offset, Partition, Timestamp};

use crate::Subject;
use crate::build::{DAY_MS, append, append_id, batch, drop_topic, remove, stream, trim};

fn bring(now: u64, partition: u32, id: &str) -> Batch {
    batch(now, vec![append_id(&stream("dedupe", partition), id, &format!("{id} at {now}"), 1000)])
}

/// Asserts that `given` is the answer for a duplicate of the event at `partition` and `offset`.
#[track_caller]
fn assert_duplicate(given: &Appended, partition: u32, offset: u64, ts: u64, id: &str) {
    let id = EventId::parse(id).unwrap_or_else(|error| panic!("{error}"));
    let (partition, offset, ts) = (Partition(partition), Offset(offset), Timestamp(ts));
    assert_eq!(*given, Appended { partition, offset, ts, id, duplicate: true, due: None });
}

pub(super) fn a_duplicate_in_the_same_batch_is_stored_once(subject: &mut Subject) {
    let s = stream("dedupe", 0);
    let ops = vec![
        append(&s, "other"),
        append_id(&s, "a", "first", 1),
        append_id(&s, "a", "second", 1),
        append(&s, "last"),
    ];
    let appended = subject.done(batch(10, ops));
    assert!(!appended[1].duplicate);
    assert_duplicate(&appended[2], 0, 2, 10, "a");
    assert_eq!((appended[3].offset.0, appended[3].duplicate), (3, false));
    assert_eq!(subject.payloads(&s), ["\"other\"", "\"first\"", "\"last\""]);
}

pub(super) fn a_duplicate_in_the_same_commit_is_stored_once(subject: &mut Subject) {
    let uuid = "01912f3a-4b5c-7dea-9bee-fcafef00d123";
    let outcomes = subject.commit(&[bring(10, 1, uuid), bring(11, 0, "b"), bring(12, 0, uuid)]);
    let millrace_model::Outcome::Done(last) = &outcomes[2] else { panic!("{outcomes:?}") };
    assert_duplicate(&last.appended[0], 1, 1, 10, uuid);
    assert_eq!(subject.payloads(&stream("dedupe", 0)), ["\"b at 11\""]);
}

pub(super) fn a_duplicate_later_is_answered_like_the_first(subject: &mut Subject) {
    subject.done(bring(10, 0, "a"));
    subject.done(bring(11, 0, "b"));
    for now in [11, 500, 1010] {
        assert_duplicate(&subject.done(bring(now, 0, "a"))[0], 0, 1, 10, "a");
    }
    assert_duplicate(&subject.done(bring(5, 0, "b"))[0], 0, 2, 11, "b");
    assert_eq!(subject.payloads(&stream("dedupe", 0)).len(), 2);
}

pub(super) fn a_duplicate_in_another_partition_names_the_first(subject: &mut Subject) {
    subject.done(bring(10, 7, "a"));
    assert_duplicate(&subject.done(bring(20, 2, "a"))[0], 7, 1, 10, "a");
    assert!(subject.payloads(&stream("dedupe", 2)).is_empty());
}

pub(super) fn a_duplicate_outside_the_window_is_new(subject: &mut Subject) {
    subject.done(bring(10, 0, "a"));
    let again = &subject.done(bring(1011, 1, "a"))[0];
    assert_eq!((again.duplicate, again.partition.0, again.offset.0), (false, 1, 1));
    for _ in 0..2 {
        assert_duplicate(&subject.done(bring(1012, 0, "a"))[0], 1, 1, 1011, "a");
        subject.maintain_all(100);
        subject.reopen();
    }
}

pub(super) fn duplicates_are_known_after_reopening(subject: &mut Subject) {
    let day = |now, id: &str| batch(now, vec![append_id(&stream("dedupe", 0), id, "x", DAY_MS)]);
    for n in 0..300 {
        subject.done(day(n, &format!("id {n}")));
        subject.done(batch(n, vec![append(&stream("dedupe", 1), "brings none")]));
    }
    for round in 0..3 {
        for n in [0, 17, 299] {
            let appended = &subject.done(day(DAY_MS / 2, &format!("id {n}")))[0];
            assert_duplicate(appended, 0, n + 1, n, &format!("id {n}"));
        }
        if round == 1 {
            subject.maintain_all(10);
        }
        subject.reopen();
    }
    assert_eq!(subject.payloads(&stream("dedupe", 0)).len(), 300);
}

/// The clock was far ahead for a moment and gave one topic an event from the future.
pub(super) fn an_event_from_the_future_makes_no_topic_forget_its_ids(subject: &mut Subject) {
    let (ahead, other) = (stream("dedupe", 0), stream("elsewhere", 0));
    let bring = |now, s, id: &str| batch(now, vec![append_id(s, id, "x", DAY_MS)]);
    for n in 0..200 {
        subject.done(bring(n, &ahead, &format!("id {n}")));
        subject.done(bring(n, &other, &format!("id {n}")));
    }
    subject.done(batch(200, vec![trim(&ahead, 50), trim(&other, 50)]));
    let future = 40 * DAY_MS;
    assert!(!subject.done(bring(future, &ahead, "from the future"))[0].duplicate);
    for round in 0..3 {
        for n in [0, 17, 100, 199] {
            for s in [&ahead, &other] {
                let again = &subject.done(bring(300, s, &format!("id {n}")))[0];
                assert_duplicate(again, 0, n + 1, n, &format!("id {n}"));
            }
        }
        let again = &subject.done(bring(300, &ahead, "from the future"))[0];
        assert_duplicate(again, 0, 201, future, "from the future");
        if round == 1 {
            subject.maintain_all(10);
        }
        subject.reopen();
    }
}

pub(super) fn ids_are_per_topic_and_a_window_of_zero_means_no_dedupe(subject: &mut Subject) {
    let (s, other) = (stream("dedupe", 0), stream("elsewhere", 0));
    let ops = vec![
        append_id(&s, "a", "1", 1000),
        append_id(&other, "a", "1", 1000),
        append_id(&s, "a", "2", 0),
        append_id(&s, "A", "3", 1000),
        append_id(&s, "b", "4", 0),
    ];
    assert!(subject.done(batch(1, ops)).iter().all(|one| !one.duplicate));
    assert_duplicate(&subject.done(bring(2, 0, "b"))[0], 0, 4, 1, "b");
}

/// The retention of events may be far shorter than the dedupe window.
pub(super) fn a_duplicate_of_a_trimmed_event_is_answered_like_the_first(subject: &mut Subject) {
    let s = stream("dedupe", 0);
    for now in 10..40 {
        subject.done(bring(now, 0, &format!("id {now}")));
    }
    // The id is brought again in one commit with the trim, then before and after the rows are deleted and the store is
    // opened again.
    let appended =
        subject.done(batch(40, vec![trim(&s, 21), append_id(&s, "id 10", "again", 1000), append(&s, "new")]));
    assert_duplicate(&appended[0], 0, 1, 10, "id 10");
    assert_eq!(appended[1].offset.0, 31);
    for round in 0..4 {
        for now in [10, 17, 29, 30, 39] {
            let again = &subject.done(bring(1000, 1, &format!("id {now}")))[0];
            assert_duplicate(again, 0, now - 9, now, &format!("id {now}"));
        }
        if round % 2 == 0 {
            subject.maintain_all(7);
        }
        subject.reopen();
    }
    assert_eq!(subject.payloads(&s).len(), 11);
    let again = &subject.done(bring(1011, 0, "id 10"))[0];
    assert_eq!((again.duplicate, again.offset.0), (false, 32), "the window is over");
}

pub(super) fn a_duplicate_of_a_removed_event_is_answered_like_the_first(subject: &mut Subject) {
    let s = stream("dedupe", 0);
    let uuid = "01912f3a-4b5c-7dea-9bee-fcafef00d123";
    for now in 10..30 {
        subject.done(bring(now, 0, if now == 12 { uuid } else { ["a", "b"][now as usize % 2] }));
        subject.done(batch(now, vec![append(&s, "brings none")]));
    }
    // The offsets of the first "a", of the first "b" and of the uuid.
    let ops = vec![remove(&s, &[1, 3, 5], 6), append_id(&s, uuid, "again", 1000)];
    let placed = subject.done(batch(30, ops));
    assert!(placed[0].duplicate);
    let expected = placed[0].offset.0;
    for round in 0..4 {
        for (id, ts) in [("a", 10), ("b", 11), (uuid, 12)] {
            let again = &subject.done(bring(31, 1, id))[0];
            assert_eq!((again.duplicate, again.partition.0, again.ts.0), (true, 0, ts), "{id} {round}");
        }
        assert_eq!(subject.done(bring(31, 1, uuid))[0].offset.0, expected);
        if round % 2 == 0 {
            subject.maintain_all(7);
        }
        subject.reopen();
    }
    assert!(subject.payloads(&stream("dedupe", 1)).is_empty());
}

pub(super) fn a_duplicate_of_a_dropped_event_is_new(subject: &mut Subject) {
    let s = stream("dedupe", 0);
    for now in 10..13 {
        subject.done(bring(now, 0, &format!("id {now}")));
    }
    subject.done(batch(13, vec![trim(&s, 2)]));
    subject.maintain_all(100);
    subject.done(batch(16, vec![drop_topic("dedupe")]));
    let fresh = &subject.done(bring(17, 0, "id 11"))[0];
    assert_eq!((fresh.duplicate, fresh.offset.0), (false, 1));
    subject.maintain_all(100);
    subject.reopen();
    for (id, offset) in [("id 10", 2), ("id 12", 3)] {
        let fresh = &subject.done(bring(17, 0, id))[0];
        assert_eq!((fresh.duplicate, fresh.offset.0), (false, offset));
    }
    assert_duplicate(&subject.done(bring(17, 0, "id 11"))[0], 0, 1, 17, "id 11");
}
