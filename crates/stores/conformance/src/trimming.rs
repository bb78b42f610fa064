//! Forgetting: trims, drops, removals, and the start that a retention rule names.

use millrace_model::{Offset, Timestamp};

use crate::Subject;
use crate::build::{append, append_id, batch, drop_topic, remove, stream, trim};
use crate::subject::WHOLE;
use millrace_store::Retention;

pub(super) fn trimming_hides_at_once_and_never_goes_back(subject: &mut Subject) {
    let (s, other) = (stream("trim", 0), stream("trim", 1));
    for n in 1..=20 {
        subject.done(batch(n, vec![append(&s, &format!("{n}")), append(&other, "stays")]));
    }
    let bounds = |subject: &Subject| {
        let found = subject.streams().into_iter().find(|bounds| bounds.stream == s);
        found.map(|bounds| (bounds.start.0, bounds.next.0))
    };
    for (start, expected) in [(0, 1), (1, 1), (6, 6), (3, 6), (7, 7), (21, 21), (2, 21), (u64::MAX, 21)] {
        subject.done(batch(30, vec![trim(&s, start)]));
        assert_eq!(bounds(subject), Some((expected, 21)), "trim to {start}");
        let page = subject.page(&s, 1, WHOLE);
        let offsets: Vec<u64> = page.events.iter().map(|event| event.offset.0).collect();
        assert_eq!(offsets, (expected..21).collect::<Vec<_>>());
        assert_eq!((page.through, page.damaged), (Offset(20), vec![]));
        if start == 7 {
            subject.maintain_all(2);
            subject.reopen();
        }
    }
    subject.done(batch(31, vec![trim(&stream("unknown", 9), 5)]));
    assert_eq!(subject.streams().len(), 2);
    assert_eq!(subject.done(batch(10, vec![append(&s, "next")]))[0].offset, Offset(21));
    subject.maintain_all(100);
    subject.reopen();
    assert_eq!(subject.payloads(&s), ["\"next\""]);
    assert_eq!(subject.page(&s, 1, WHOLE).events[0].ts, Timestamp(20));
    assert_eq!(subject.payloads(&other).len(), 20);
}

pub(super) fn a_dropped_topic_starts_again_at_one(subject: &mut Subject) {
    let (s, second, other) = (stream("dropped", 0), stream("dropped", 1), stream("dropped.not", 0));
    for n in 1..=5 {
        subject
            .done(batch(n * 100, vec![append(&s, "old"), append(&second, "old"), append(&other, "stays")]));
    }
    subject.done(batch(600, vec![drop_topic("dropped"), drop_topic("unknown")]));
    assert_eq!(subject.streams().iter().map(|bounds| &bounds.stream).collect::<Vec<_>>(), [&other]);
    assert_eq!(subject.page(&s, 1, WHOLE).through, Offset::ZERO);
    assert_eq!(subject.seek(&s, 0), 1);
    let fresh = &subject.done(batch(50, vec![append(&s, "new")]))[0];
    assert_eq!((fresh.offset, fresh.ts), (Offset::FIRST, Timestamp(50)));
    for _ in 0..3 {
        assert_eq!(subject.payloads(&s), ["\"new\""]);
        assert!(subject.payloads(&second).is_empty());
        assert_eq!(subject.payloads(&other).len(), 5);
        subject.maintain_all(3);
        subject.reopen();
    }
    subject
        .commit(&[batch(700, vec![drop_topic("dropped")]), batch(700, vec![append(&second, "third life")])]);
    assert_eq!(subject.payloads(&second), ["\"third life\""]);
    assert!(subject.payloads(&s).is_empty());
}

pub(super) fn retention_by_age_and_bytes_names_a_start(subject: &mut Subject) {
    let s = stream("retention", 0);
    for n in 1..=40 {
        // The payload has ten bytes, its quotes included.
        subject.done(batch(n * 10, vec![append(&s, "12345678"), append(&stream("retention", 1), "x")]));
    }
    subject.done(batch(401, vec![trim(&s, 3)]));
    let age = |ts| Retention { older_than: Some(Timestamp(ts)), bytes_max: None };
    let size = |bytes| Retention { older_than: None, bytes_max: Some(bytes) };
    for _ in 0..3 {
        for (rule, expected) in [
            (Retention::default(), 3),
            (age(0), 3),
            (age(30), 3),
            (age(31), 4),
            (age(400), 40),
            (age(401), 41),
            (size(u64::MAX), 3),
            (size(380), 3),
            (size(379), 4),
            (size(100), 31),
            (size(99), 32),
            (size(10), 40),
            (size(9), 41),
            (size(0), 41),
            (Retention { older_than: Some(Timestamp(105)), bytes_max: Some(100) }, 31),
            (Retention { older_than: Some(Timestamp(395)), bytes_max: Some(100) }, 40),
        ] {
            assert_eq!(subject.retention_start(&s, rule), expected, "{rule:?}");
        }
        subject.maintain_all(9);
        subject.reopen();
    }
    assert_eq!(subject.retention_start(&stream("unknown", 0), size(0)), 1);
    assert_eq!(subject.payloads(&s).len(), 38, "asking only looks");
}

pub(super) fn removed_events_are_gone_and_the_others_stay(subject: &mut Subject) {
    let (s, other) = (stream("removed", 0), stream("removed", 1));
    for n in 1..=40 {
        let brought = append_id(&s, &format!("id-{n}"), &format!("{n}"), u64::MAX);
        subject.done(batch(n * 10, vec![brought, append(&other, "stays")]));
    }
    // Offsets at or above `compacted_to` are not removed, and offsets without an event are ignored.
    subject.done(batch(
        500,
        vec![remove(&s, &[2, 3, 9, 10, 25, 30], 26), remove(&stream("unknown", 0), &[1], 5)],
    ));
    let mut expected: Vec<u64> = (1..=40).filter(|n| ![2, 3, 9, 10, 25].contains(n)).collect();
    for round in 0..4 {
        let page = subject.page(&s, 1, WHOLE);
        let offsets: Vec<u64> = page.events.iter().map(|event| event.offset.0).collect();
        assert_eq!(offsets, expected, "round {round}");
        assert_eq!((page.through, page.damaged), (Offset(expected[expected.len() - 1]), vec![]));
        assert_eq!(subject.payloads(&other).len(), 40);
        // A page that begins in a hole continues behind it.
        let page = subject.page(&s, 9, millrace_store::ReadLimit { events_max: 4, bytes_max: usize::MAX });
        assert!(page.through >= Offset(11) && page.damaged.is_empty());
        assert_eq!(page.events[0].offset, Offset(11));
        assert_eq!(subject.streams().len(), 2);
        if round == 1 {
            // By now the events are folded, if the adapter folds (packs old events together).
            subject.done(batch(600, vec![remove(&s, &[1, 4, 40], 41)]));
            expected.retain(|n| ![1, 4, 40].contains(n));
            subject.done(batch(700, vec![append(&s, "41")]));
            expected.push(41);
        }
        subject.maintain_all(3);
        subject.reopen();
    }
    // Seeking by time still works: no event from the offset found on is older.
    for ts in [25, 90, 101, 400] {
        let from = subject.seek(&s, ts);
        let first = subject.page(&s, from, WHOLE).events[0].clone();
        assert!(first.ts.0 >= ts);
        let before = expected.iter().rev().find(|n| **n < first.offset.0);
        assert!(before.is_none_or(|n| n * 10 < ts), "{ts}: {before:?}");
    }
    // An id stays taken although its event is removed.
    let again = subject.done(batch(800, vec![append_id(&s, "id-3", "again", u64::MAX)]));
    assert_eq!((again[0].offset, again[0].duplicate), (Offset(3), true));
    let fresh = subject.done(batch(800, vec![append_id(&s, "id-42", "again", u64::MAX)]));
    assert_eq!((fresh[0].offset, fresh[0].duplicate), (Offset(42), false));
    let known = subject.done(batch(800, vec![append_id(&s, "id-5", "again", u64::MAX)]));
    assert_eq!((known[0].offset, known[0].duplicate), (Offset(5), true));
    subject.done(batch(900, vec![trim(&s, 42)]));
    subject.maintain_all(3);
    subject.reopen();
    assert_eq!(subject.payloads(&s), ["\"again\""]);
}
