//! Batches: each is applied whole or not at all, and in order.

use bytes::Bytes;
use millrace_model::{Done, Outcome, Refusal, Space};

use crate::Subject;
use crate::build::{absent, append, batch, checked, delete, drop_topic, equals, present, put, stream, trim};
use crate::subject::WHOLE;

pub(super) fn a_refused_batch_leaves_nothing_and_the_others_stand(subject: &mut Subject) {
    let (s, never) = (stream("atomic", 0), stream("never", 0));
    subject.done(batch(1, vec![append(&s, "first"), put(Space::Topics, "t", "1")]));
    let refused = checked(
        2,
        vec![absent(Space::Kv, "free"), present(Space::Kv, "taken")],
        vec![
            append(&s, "no"),
            append(&never, "no"),
            put(Space::Kv, "k", "no"),
            delete(Space::Topics, "t"),
            trim(&s, 2),
            drop_topic("atomic"),
        ],
    );
    let outcomes = subject.commit(&[
        batch(2, vec![append(&s, "second")]),
        refused.clone(),
        batch(2, vec![append(&s, "third"), put(Space::Kv, "l", "yes")]),
        refused,
    ]);
    assert!(matches!(
        outcomes.as_slice(),
        [Outcome::Done(_), Outcome::Refused(Refusal { check: 1, .. }), Outcome::Done(_), Outcome::Refused(_)]
    ));
    for _ in 0..2 {
        assert_eq!(subject.payloads(&s), ["\"first\"", "\"second\"", "\"third\""]);
        assert_eq!(subject.streams().len(), 1);
        assert_eq!(subject.table(Space::Kv), ["l=yes"]);
        assert_eq!(subject.table(Space::Topics), ["t=1"]);
        subject.reopen();
    }
}

pub(super) fn a_refusal_names_the_check_and_what_it_found(subject: &mut Subject) {
    subject.done(batch(1, vec![put(Space::Due, "k", "v")]));
    let v = Some(Bytes::from_static(b"v"));
    for (checks, expected) in [
        (vec![absent(Space::Due, "k")], Some((0, v.clone()))),
        (vec![present(Space::Due, "k"), equals(Space::Due, "k", "w")], Some((1, v.clone()))),
        (vec![equals(Space::Due, "k", "v"), present(Space::Due, "x")], Some((1, None))),
        (vec![equals(Space::Due, "x", "v")], Some((0, None))),
        (vec![absent(Space::Due, "x"), equals(Space::Due, "k", "v"), present(Space::Due, "k")], None),
    ] {
        let shown = format!("{checks:?}");
        let outcome = subject.commit(&[checked(2, checks, vec![])]).remove(0);
        let refusal = expected.map(|(check, found)| Refusal { check, found });
        assert_eq!(outcome, refusal.map_or(Outcome::Done(Done::default()), Outcome::Refused), "{shown}");
    }
}

pub(super) fn a_batch_sees_the_writes_of_those_before_it(subject: &mut Subject) {
    let claim = |now| checked(now, vec![absent(Space::DueIds, "id")], vec![put(Space::DueIds, "id", "1")]);
    let outcomes = subject.commit(&[
        claim(1),
        claim(1),
        checked(1, vec![equals(Space::DueIds, "id", "1")], vec![delete(Space::DueIds, "id")]),
        claim(1),
    ]);
    let refused: Vec<bool> = outcomes.iter().map(|outcome| matches!(outcome, Outcome::Refused(_))).collect();
    assert_eq!(refused, [false, true, false, false]);
    assert_eq!(subject.table(Space::DueIds), ["id=1"]);
}

pub(super) fn operations_of_a_batch_apply_in_order(subject: &mut Subject) {
    let s = stream("order", 0);
    let ops = vec![
        put(Space::Groups, "a", "1"),
        put(Space::Groups, "a", "2"),
        put(Space::Groups, "b", "1"),
        delete(Space::Groups, "b"),
        delete(Space::Groups, "unknown"),
        append(&s, "gone with the topic"),
        drop_topic("order"),
        append(&s, "one"),
        append(&s, "two"),
        trim(&s, 2),
        append(&s, "three"),
    ];
    let offsets: Vec<u64> = subject.done(batch(5, ops)).iter().map(|one| one.offset.0).collect();
    assert_eq!(offsets, [1, 1, 2, 3]);
    for _ in 0..2 {
        assert_eq!(subject.table(Space::Groups), ["a=2"]);
        assert_eq!(subject.payloads(&s), ["\"two\"", "\"three\""]);
        assert_eq!(subject.page(&s, 0, WHOLE).through.0, 3);
        subject.maintain_all(10);
        subject.reopen();
    }
}

pub(super) fn a_commit_of_nothing_does_nothing(subject: &mut Subject) {
    assert_eq!(subject.commit(&[]), []);
    assert_eq!(
        subject.commit(&[batch(1, vec![]), batch(2, vec![])]),
        [Outcome::Done(Done::default()), Outcome::Done(Done::default())]
    );
    assert_eq!(subject.streams(), []);
}
