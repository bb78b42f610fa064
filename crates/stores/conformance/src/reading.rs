//! Reading: pages, where they end, and how to find an offset by time.

use millrace_model::Offset;

use crate::Subject;
use crate::build::{append, batch, body, stream, trim};
use crate::subject::WHOLE;
use millrace_store::ReadLimit;

fn filled(subject: &Subject, count: u64) -> millrace_model::Stream {
    let s = stream("pages", 0);
    let other = stream("pages", 1);
    for n in 1..=count {
        subject.done(batch(n * 10, vec![append(&s, &format!("{n:03}")), append(&other, "noise")]));
    }
    s
}

pub(super) fn a_page_ends_at_its_event_limit(subject: &mut Subject) {
    let s = filled(subject, 25);
    for events_max in [1, 7, 25, 26] {
        let limit = ReadLimit { events_max, bytes_max: usize::MAX };
        let (mut from, mut seen) = (1, Vec::new());
        loop {
            let page = subject.page(&s, from, limit);
            assert!(page.events.len() <= events_max);
            if page.events.is_empty() {
                assert_eq!(page.through, Offset(25));
                break;
            }
            assert_eq!(page.events[0].offset, Offset(from));
            assert_eq!(page.events.last().map(|event| event.offset), Some(page.through));
            seen.extend(page.events.iter().map(|event| event.offset.0));
            from = page.through.0 + 1;
        }
        assert_eq!(seen, (1..=25).collect::<Vec<_>>(), "pages of {events_max}");
    }
    let nothing = subject.page(&s, 4, ReadLimit { events_max: 0, bytes_max: usize::MAX });
    assert_eq!((nothing.events.len(), nothing.through), (0, Offset(3)));
}

pub(super) fn a_page_ends_at_its_byte_limit_but_holds_one_event(subject: &mut Subject) {
    let s = filled(subject, 10);
    let each = body("000").bytes();
    for (bytes_max, expected) in
        [(0, 1), (each - 1, 1), (each, 1), (3 * each - 1, 2), (3 * each, 3), (99 * each, 8)]
    {
        let page = subject.page(&s, 3, ReadLimit { events_max: 100, bytes_max });
        assert_eq!(page.events.len(), expected, "{bytes_max} bytes");
        assert_eq!(page.through, Offset(2 + expected as u64));
    }
}

pub(super) fn reading_past_the_end_or_nothing_says_through(subject: &mut Subject) {
    let unknown = subject.page(&stream("unknown", 0), 1, WHOLE);
    assert_eq!((unknown.events.len(), unknown.through), (0, Offset::ZERO));
    let s = filled(subject, 5);
    for from in [6, 7, u64::MAX] {
        let page = subject.page(&s, from, WHOLE);
        assert_eq!((page.events.len(), page.through, page.damaged), (0, Offset(5), vec![]));
    }
    subject.done(batch(60, vec![trim(&s, 4)]));
    for from in [0, 1, 3, 4] {
        let page = subject.page(&s, from, WHOLE);
        let offsets: Vec<u64> = page.events.iter().map(|event| event.offset.0).collect();
        assert_eq!((offsets, page.through, page.damaged), (vec![4, 5], Offset(5), vec![]));
    }
}

pub(super) fn seeking_finds_the_first_event_not_older(subject: &mut Subject) {
    let s = filled(subject, 30);
    subject.done(batch(200, vec![append(&s, "clock fell"), append(&s, "same time")]));
    subject.done(batch(1000, vec![append(&s, "late"), trim(&s, 5)]));
    assert_eq!(subject.seek(&stream("unknown", 0), 0), 1);
    for _ in 0..3 {
        for (ts, expected) in [
            (0, 5),
            (50, 5),
            (51, 6),
            (60, 6),
            (299, 30),
            (300, 30),
            (301, 33),
            (1000, 33),
            (1001, 34),
            (u64::MAX, 34),
        ] {
            assert_eq!(subject.seek(&s, ts), expected, "{ts}");
        }
        subject.maintain_all(7);
        subject.reopen();
    }
}
