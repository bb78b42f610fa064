//! Housekeeping and reopening: neither may be visible, except for the space that is freed.

use millrace_model::{Offset, Space};

use crate::Subject;
use crate::build::{append, batch, delete, drop_topic, put, stream, trim};
use crate::subject::WHOLE;

pub(super) fn maintenance_reclaims_and_comes_to_an_end(subject: &mut Subject) {
    let (s, gone, other) = (stream("kept", 0), stream("gone", 0), stream("other", 0));
    for n in 0..200 {
        subject.done(batch(n, vec![append(&s, "12345678"), append(&gone, "x"), append(&other, "x")]));
    }
    subject.done(batch(200, vec![trim(&s, 151), drop_topic("gone")]));
    subject.maintain_all(16);
    for _ in 0..2 {
        let kept = subject.streams().into_iter().find(|bounds| bounds.stream == s);
        assert_eq!(kept.map(|bounds| (bounds.start.0, bounds.next.0, bounds.bytes)), Some((151, 201, 500)));
        assert_eq!(subject.payloads(&s).len(), 50);
        assert_eq!(subject.payloads(&other).len(), 200);
        assert_eq!(subject.maintain_all(16), 0, "nothing is left to do");
        subject.reopen();
    }
    subject.done(batch(300, vec![trim(&s, 201)]));
    subject.maintain_all(1);
    assert_eq!(subject.streams().into_iter().map(|bounds| bounds.bytes).collect::<Vec<_>>(), [0, 600]);
}

pub(super) fn maintenance_between_commits_changes_nothing(subject: &mut Subject) {
    let streams = [stream("upkeep", 0), stream("upkeep", 1), stream("upkeep", 2)];
    for n in 0..90u64 {
        let ops = (0..=n % 3).map(|at| append(&streams[at as usize], &format!("{n}"))).collect();
        subject.done(batch(n, ops));
        match n % 10 {
            3 => {
                subject.maintain_all(2);
            }
            6 => {
                // Only a slice of the housekeeping: the rest is left for later, or for after the reopening.
                let _ = subject.store().maintain(1);
            }
            9 => subject.reopen(),
            _ => {}
        }
    }
    for (at, s) in streams.iter().enumerate() {
        let expected: Vec<String> =
            (0..90).filter(|n| n % 3 >= at as u64).map(|n| format!("\"{n}\"")).collect();
        assert_eq!(subject.payloads(s), expected);
    }
}

pub(super) fn reopening_keeps_everything(subject: &mut Subject) {
    let s = stream("reopen", 0);
    for round in 0..5u64 {
        subject.done(batch(
            round,
            vec![append(&s, &format!("{round}")), put(Space::Kv, &format!("{round}"), "v")],
        ));
        if round == 3 {
            subject.done(batch(round, vec![delete(Space::Kv, "0"), trim(&s, 2)]));
        }
        subject.reopen();
        assert_eq!(subject.page(&s, 0, WHOLE).through, Offset(round + 1));
    }
    assert_eq!(subject.payloads(&s), ["\"1\"", "\"2\"", "\"3\"", "\"4\""]);
    assert_eq!(subject.table(Space::Kv), ["1=v", "2=v", "3=v", "4=v"]);
}
