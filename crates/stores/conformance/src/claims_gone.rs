//! Claims and lanes on events that are not there any more: trimmed, removed or dropped.

use millrace_model::{Ending, FinishedRow, Op, Outcome, Space, keys};

use crate::Subject;
use crate::build::{
    ack, append, append_priority, batch, claim_of, drop_topic, handler, release, remove, stream, trim,
};
use crate::claims::texts;

fn endings(subject: &Subject) -> Vec<(String, Ending)> {
    let rows = subject.store().scan(Space::Finished, &millrace_store::KeyRange::all(), usize::MAX);
    let rows = rows.unwrap_or_else(|error| panic!("{error}"));
    rows.into_iter()
        .map(|row| match FinishedRow::decode(&row.key, &row.value) {
            Ok(read) => (row.key, read.ending),
            Err(error) => panic!("{error}"),
        })
        .collect()
}

pub(super) fn a_claimed_event_that_is_gone_is_lost(subject: &mut Subject) {
    let s = stream("gone", 0);
    subject.done(batch(1, (0..6).map(|n| append_priority(&s, &n.to_string(), 100 + n % 2)).collect()));
    let taken = subject.claim(2, claim_of("gone", "h", 9, 50));
    assert_eq!(taken.len(), 6);
    subject.done(batch(3, vec![trim(&s, 3), remove(&s, &[4], 5)]));
    // A session that still holds a trimmed event may finish it.
    let first = taken.iter().find(|one| one.ticket.offset.0 == 1).map(|one| one.ticket.clone());
    subject.done(ack(4, &first.unwrap_or_else(|| panic!("{taken:?}"))));
    let again = subject.claim(60, claim_of("gone", "h", 9, 90));
    assert_eq!(texts(&again), ["5", "2", "4"]);
    let lost: Vec<_> = endings(subject).into_iter().filter(|(_, ending)| *ending == Ending::Lost).collect();
    let key = |offset| keys::finished(&s, millrace_model::Offset(offset), &handler("h"));
    assert_eq!(lost, [(key(2), Ending::Lost), (key(4), Ending::Lost)]);
    assert_eq!(subject.table(Space::Claims).len(), 3);
}

pub(super) fn trimmed_events_ahead_of_a_lane_are_passed(subject: &mut Subject) {
    let s = stream("ahead", 0);
    for n in 0..20 {
        subject.done(batch(n, vec![append_priority(&s, &n.to_string(), if n % 4 == 0 { 500 } else { 100 })]));
    }
    assert_eq!(texts(&subject.claim(30, claim_of("ahead", "h", 3, 500))), ["0", "4", "8"]);
    subject.done(batch(31, vec![trim(&s, 14)]));
    // The same holds for a claim in the commit of the trim itself.
    let ops = vec![trim(&s, 15), Op::Claim(claim_of("ahead", "h", 3, 500))];
    assert_eq!(texts(&subject.all_done(batch(32, ops)).claimed), ["16", "14", "15"]);
    subject.maintain_all(3);
    subject.reopen();
    assert_eq!(texts(&subject.claim(33, claim_of("ahead", "h", 9, 500))), ["17", "18", "19"]);
    assert_eq!(subject.claim(34, claim_of("ahead", "h", 9, 500)), []);
    assert_eq!(endings(subject), [], "what nobody had claimed was not lost");
}

pub(super) fn holes_of_compaction_are_passed(subject: &mut Subject) {
    let s = stream("holes", 0);
    for n in 1..=12 {
        subject.done(batch(n, vec![append_priority(&s, &n.to_string(), if n % 3 == 0 { 7 } else { 100 })]));
    }
    subject.done(batch(20, vec![remove(&s, &[1, 2, 3, 5, 9, 11], 12)]));
    subject.maintain_all(5);
    let taken = subject.claim(21, claim_of("holes", "h", 99, 500));
    assert_eq!(texts(&taken), ["4", "7", "8", "10", "6", "12"]);
    let idle = subject.all_done(batch(22, vec![Op::Claim(claim_of("holes", "h", 99, 500))]));
    assert_eq!((idle.claimed.len(), idle.more), (0, false));
    assert_eq!(endings(subject), []);
}

pub(super) fn a_dropped_topic_strands_no_handler(subject: &mut Subject) {
    let s = stream("again", 0);
    let fill = |now: u64, text: &str| {
        let ops = (0..5).map(|n| append_priority(&s, &format!("{text}{n}"), if n == 3 { 900 } else { 100 }));
        subject.done(batch(now, ops.collect()));
    };
    fill(1, "old");
    fill(1, "old");
    let held = subject.claim(2, claim_of("again", "h", 2, 50)).remove(0).ticket;
    let waiting = subject.claim(2, claim_of("again", "h", 2, 50)).remove(0).ticket;
    subject.done(release(3, &waiting, 20));
    subject.done(batch(4, vec![drop_topic("again")]));
    fill(5, "new");
    assert!(matches!(subject.commit(&[ack(6, &held)]).as_slice(), [Outcome::Refused(_)]));
    let taken = subject.claim(60, claim_of("again", "h", 99, 90));
    assert_eq!(texts(&taken), ["new3", "new0", "new1", "new2", "new4"]);
    assert!(taken.iter().all(|one| one.ticket.row.generation == 1));
    subject.maintain_all(2);
    assert_eq!(subject.claim(61, claim_of("again", "h", 99, 99)), []);
    assert_eq!(subject.table(Space::OffPriority).len(), 1);
    // The topic is dropped and begun again in the commit of the claim: the claim sees neither the old nor the new
    // events.
    let ops = vec![
        drop_topic("again"),
        append_priority(&s, "newest", 900),
        Op::Claim(claim_of("again", "h", 9, 200)),
    ];
    assert_eq!(subject.all_done(batch(100, ops)).claimed, []);
    assert_eq!(texts(&subject.claim(101, claim_of("again", "h", 9, 200))), ["newest"]);
}

pub(super) fn rows_of_events_that_are_gone_go_with_them(subject: &mut Subject) {
    let (s, other) = (stream("rows", 0), stream("rows", 10));
    for n in 0..30 {
        let priority = 100 + n % 3;
        subject.done(batch(
            n as u64,
            vec![append_priority(&s, "e", priority), append_priority(&other, "e", priority)],
        ));
    }
    loop {
        let taken = subject.claim(50, claim_of("rows", "h", 7, 90));
        if taken.is_empty() {
            break;
        }
        for one in &taken {
            subject.done(ack(51, &one.ticket));
        }
    }
    let counts =
        |subject: &Subject| (subject.table(Space::OffPriority).len(), subject.table(Space::Finished).len());
    assert_eq!(counts(subject), (40, 60));
    subject.done(batch(60, vec![trim(&s, 16), remove(&other, &[2, 4, 5], 9)]));
    subject.maintain_all(4);
    assert_eq!(counts(subject), (40 - 10 - 2, 60 - 15 - 3));
    subject.done(batch(61, vec![drop_topic("rows"), append(&s, "new")]));
    subject.maintain_all(4);
    assert_eq!(counts(subject), (0, 0));
    assert_eq!(subject.maintain_all(4), 0, "nothing is left to do");
}
