//! Watching commits, and listing streams.

use std::collections::BTreeMap;

use millrace_model::{Offset, Space, Stream, Timestamp};

use crate::Subject;
use crate::build::{append, append_id, batch, drop_topic, put, stream, trim};
use millrace_store::{CommitNumber, StreamBounds};

/// Follows the feed to its end and adds up what it tells per stream. Asserts that the runs of a stream have no gaps.
fn follow(
    subject: &Subject,
    mut after: CommitNumber,
    commits_max: usize,
    ends: &mut BTreeMap<Stream, u64>,
) -> CommitNumber {
    loop {
        let changes = subject.watch(after, commits_max);
        assert!(changes.complete);
        assert!(changes.last >= after);
        for run in &changes.runs {
            let end = ends.entry(run.stream.clone()).or_insert(1);
            assert_eq!(run.first.0, *end, "{}", run.stream);
            *end += run.count;
        }
        if changes.last == after {
            return after;
        }
        after = changes.last;
    }
}

pub(super) fn a_watcher_pages_through_commits(subject: &mut Subject) {
    let (s, other) = (stream("feed", 0), stream("feed", 1));
    for n in 0..20 {
        subject.done(batch(n, vec![append(&s, "x"), append(&other, "x"), append(&s, "x")]));
    }
    for commits_max in [1, 3, 1000] {
        let mut ends = BTreeMap::new();
        follow(subject, CommitNumber(0), commits_max, &mut ends);
        assert_eq!(ends, BTreeMap::from([(s.clone(), 41), (other.clone(), 21)]));
    }
    let mut ends = BTreeMap::new();
    let last = follow(subject, CommitNumber(0), 1000, &mut ends);
    subject.done(batch(21, vec![put(Space::Kv, "not", "an append")]));
    subject.done(batch(21, vec![append_id(&s, "a", "x", 9)]));
    subject.done(batch(21, vec![append_id(&s, "a", "a duplicate", 9)]));
    subject.maintain_all(10);
    subject.reopen();
    subject.done(batch(22, vec![append(&other, "x")]));
    let newest = follow(subject, last, 1000, &mut ends);
    assert_eq!(ends, BTreeMap::from([(s, 42), (other, 22)]));
    assert!(subject.watch(newest, 10).runs.is_empty());
}

pub(super) fn a_watcher_is_told_of_streams_that_were_trimmed(subject: &mut Subject) {
    let (s, other, gone) = (stream("feed", 0), stream("feed", 1), stream("gone", 0));
    let appends = |stream: &Stream| (0..5).map(|_| append(stream, "x")).collect::<Vec<_>>();
    for stream in [&s, &other, &gone] {
        subject.done(batch(1, appends(stream)));
    }
    let last = follow(subject, CommitNumber(0), 1000, &mut BTreeMap::new());
    subject.done(batch(2, vec![trim(&s, 4)]));
    subject.done(batch(2, vec![trim(&gone, 2), drop_topic("gone")]));
    for _ in 0..2 {
        let changes = subject.watch(last, 1000);
        assert!(changes.complete && changes.last > last);
        let told: Vec<_> = changes.trimmed.iter().map(|at| (&at.stream, at.start.0, at.next.0)).collect();
        assert_eq!(told, [(&s, 4, 6)], "not the stream that nobody trimmed, nor the dropped one");
        assert!(changes.runs.is_empty());
        subject.reopen();
    }
    // The bounds of a trimmed stream fit together wherever a page of the feed ends, although its events were appended
    // only since `last`.
    subject.done(batch(3, appends(&other)));
    subject.done(batch(3, vec![trim(&other, 9)]));
    let mut after = last;
    loop {
        let changes = subject.watch(after, 1);
        for at in &changes.trimmed {
            assert!(at.start <= at.next, "{at:?}");
        }
        if changes.last == after {
            break;
        }
        after = changes.last;
    }
}

pub(super) fn a_watcher_that_fell_too_far_behind_is_told_to_start_over(subject: &mut Subject) {
    let s = stream("feed", 0);
    subject.done(batch(1, vec![append(&s, "x")]));
    let ahead = subject.watch(CommitNumber(u64::MAX), 10);
    assert!(!ahead.complete && ahead.runs.is_empty());
    assert!(subject.watch(ahead.last, 10).complete);
    // No store is obliged to forget commits, so the suite cannot test more than this of every store.
}

pub(super) fn dropped_topics_are_not_told(subject: &mut Subject) {
    let (s, other) = (stream("gone", 0), stream("feed", 0));
    subject.done(batch(1, vec![append(&s, "x"), append(&other, "x")]));
    subject.commit(&[batch(1, vec![append(&s, "x")]), batch(1, vec![drop_topic("gone")])]);
    for _ in 0..2 {
        let mut ends = BTreeMap::new();
        follow(subject, CommitNumber(0), 10, &mut ends);
        assert_eq!(ends, BTreeMap::from([(other.clone(), 2)]));
        subject.reopen();
    }
}

pub(super) fn streams_are_listed_with_their_bounds(subject: &mut Subject) {
    let (a, b) = (stream("a", 0), stream("b", 5));
    subject.done(batch(10, vec![append(&b, "12"), append(&a, "1234"), append(&b, "")]));
    subject.done(batch(5, vec![append(&b, "1")]));
    let bounds = |stream: &Stream, next, bytes, ts| StreamBounds {
        stream: stream.clone(),
        start: Offset::FIRST,
        next: Offset(next),
        bytes,
        last_ts: Timestamp(ts),
    };
    for _ in 0..3 {
        assert_eq!(subject.streams(), [bounds(&a, 2, 6, 10), bounds(&b, 4, 9, 10)]);
        subject.maintain_all(10);
        subject.reopen();
    }
}
