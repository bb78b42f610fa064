//! Claims: which handler gets which events, in which order, for how long.

use millrace_model::{
    Claim, ClaimRow, ClaimState, Claimed, LaneRow, Offset, Op, Outcome, RunMark, Space, Suspicion, Ticket,
    keys,
};

use crate::Subject;
use crate::build::{
    ack, append, append_priority, batch, checked, claim_of, delete, handler, release, stream, topic,
};
use millrace_resolve::PASSED_OVER_MAX;

pub(super) fn texts(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().map(|one| one.event.body.payload.as_str().trim_matches('"')).collect()
}

pub(super) fn claims_are_in_order_of_priority_time_and_place(subject: &mut Subject) {
    let s = stream("order", 0);
    let given = [("plain", 100), ("low", 5), ("high", 900), ("plain2", 100), ("higher", 901), ("high2", 900)];
    for (at, (text, priority)) in given.iter().enumerate() {
        subject.done(batch(10 + at as u64, vec![append_priority(&s, text, *priority)]));
    }
    // A priority beyond the range of lanes counts as the nearest end of the range.
    let ops = vec![
        append_priority(&s, "below", -7),
        append_priority(&s, "top", 5000),
        append_priority(&s, "top2", 1000),
    ];
    subject.done(batch(30, ops));
    subject.reopen();
    let expected = ["top", "top2", "higher", "high", "high2", "plain", "plain2", "low", "below"];
    for (at, expected) in expected.chunks(2).enumerate() {
        let done = subject.all_done(batch(50, vec![Op::Claim(claim_of("order", "h", 2, 900 + at as u64))]));
        assert_eq!(texts(&done.claimed), expected);
        assert_eq!(done.more, at < 4, "after {expected:?}");
        let row = &done.claimed[0].ticket.row;
        assert_eq!((row.generation, row.attempts, row.steps), (1, 0, 0));
        assert_eq!((row.due.0, row.claimed_at.0, row.state), (900 + at as u64, 50, ClaimState::Leased));
    }
    let idle = subject.all_done(batch(60, vec![Op::Claim(claim_of("order", "h", 9, 999))]));
    assert_eq!((idle.claimed.len(), idle.more), (0, false));
    assert_eq!(subject.table(Space::Claims).len(), expected.len());
    let lanes = subject.table(Space::Lanes);
    assert_eq!(lanes.len(), 1, "nothing is left of the other lanes: {lanes:?}");
    // When the leases have expired, all events come back at once, in the same order.
    let again = subject.claim(5000, claim_of("order", "h", 100, 9000));
    assert_eq!(texts(&again), expected);
}

pub(super) fn claims_of_many_partitions_are_in_order_of_time(subject: &mut Subject) {
    for n in 0..60u64 {
        let s = stream("wide", (n * 7 % 5) as u32);
        subject.done(batch(
            100 + n,
            vec![append_priority(&s, &n.to_string(), if n % 10 == 0 { 7 } else { 100 })],
        ));
    }
    let (mut got, mut rounds) = (Vec::new(), 0);
    loop {
        let done = subject.all_done(batch(500, vec![Op::Claim(claim_of("wide", "h", 8, 900))]));
        got.extend(
            done.claimed.iter().map(|one| texts(std::slice::from_ref(one))[0].parse::<u64>().unwrap_or(99)),
        );
        rounds += 1;
        if !done.more {
            break;
        }
    }
    let mut expected: Vec<u64> = (0..60).filter(|n| n % 10 != 0).collect();
    expected.extend((0..60).filter(|n| n % 10 == 0));
    assert_eq!(got, expected);
    assert_eq!(rounds, 8, "60 events in claims of 8");
}

pub(super) fn each_handler_gets_every_event_once(subject: &mut Subject) {
    let s = stream("once", 0);
    for n in 0..10 {
        subject.done(batch(n, vec![append(&s, &n.to_string())]));
    }
    for of in ["a", "m::b:f"] {
        for part in [0..4, 4..8, 8..10] {
            let expected: Vec<String> = part.map(|n: u64| n.to_string()).collect();
            assert_eq!(texts(&subject.claim(20, claim_of("once", of, 4, 100))), expected);
            subject.reopen();
        }
        assert_eq!(subject.claim(99, claim_of("once", of, 4, 200)), []);
    }
    assert_eq!(subject.claim(20, claim_of("other", "a", 4, 100)), []);
    assert_eq!(subject.claim(20, claim_of("once", "c", 0, 100)), []);
    // Two claims in one commit, and two in one batch, never share an event.
    let ops = || vec![Op::Claim(claim_of("once", "d", 3, 100)), Op::Claim(claim_of("once", "d", 3, 100))];
    let outcomes = subject.commit(&[batch(20, ops()), batch(20, ops())]);
    let mut all = Vec::new();
    for outcome in &outcomes {
        let Outcome::Done(done) = outcome else { panic!("{outcome:?}") };
        all.extend(done.claimed.iter().map(|one| one.ticket.offset.0));
    }
    assert_eq!(all, (1..=10).collect::<Vec<u64>>());
}

pub(super) fn a_lease_ends_exactly_when_it_says(subject: &mut Subject) {
    subject.done(batch(1, vec![append(&stream("lease", 0), "e")]));
    let first = subject.claim(10, claim_of("lease", "h", 1, 50)).remove(0);
    assert!(first.ticket.is_held(millrace_model::Timestamp(49)));
    assert!(!first.ticket.is_held(millrace_model::Timestamp(50)));
    assert_eq!(subject.claim(49, claim_of("lease", "h", 1, 90)), []);
    let second = subject.claim(50, claim_of("lease", "h", 1, 90)).remove(0);
    assert_eq!(
        (second.ticket.row.generation, second.ticket.row.attempts),
        (2, 0),
        "whether it was called is not known"
    );
    assert_eq!(second.event, first.event);
    assert_eq!(subject.table(Space::Claims).len(), 1, "the old row went");
}

pub(super) fn only_runs_that_started_count_when_a_lease_ends(subject: &mut Subject) {
    let s = stream("started", 0);
    subject.done(batch(1, ["a", "b", "c"].iter().map(|text| append(&s, text)).collect()));
    let claim = |until, start_max| Claim { start_max, ..claim_of("started", "h", 9, until) };
    let known = |claimed: &[Claimed]| -> Vec<_> {
        let rows = claimed.iter().map(|one| &one.ticket.row);
        rows.map(|row| (row.attempts, row.run, row.suspicion)).collect()
    };
    let first = subject.claim(10, claim(50, 1));
    let fresh = (0, RunMark::Unknown, Suspicion::None);
    assert_eq!(known(&first), [(0, RunMark::Claimed, Suspicion::None), fresh, fresh]);
    // The run of `b` outlives most of its lease: the handler is slow, which is no reason for suspicion.
    let slow = &first[1].ticket;
    let long = Ticket { row: ClaimRow { run: RunMark::Long, ..slow.row.clone() }, ..slow.clone() };
    subject.done(checked(40, vec![slow.check()], vec![long.put()]));
    subject.reopen();
    let second = subject.claim(50, claim(90, 2));
    assert_eq!(
        known(&second),
        [
            // The start of a suspected event is marked in a commit of its own, once the event is alone in its session.
            (0, RunMark::Unknown, Suspicion::Likely),
            (1, RunMark::Claimed, Suspicion::None),
            (0, RunMark::Claimed, Suspicion::Possible),
        ]
    );
    // An event that was only marked with the claim may never have been run; an event that was marked as started was.
    let begun = &second[2].ticket;
    let started = Ticket { row: ClaimRow { run: RunMark::Started, ..begun.row.clone() }, ..begun.clone() };
    subject.done(checked(60, vec![begun.check()], vec![started.put()]));
    let third = subject.claim(90, claim(99, 0));
    assert_eq!(
        known(&third),
        [
            (0, RunMark::Unknown, Suspicion::Likely),
            (1, RunMark::Unknown, Suspicion::Likely),
            (1, RunMark::Unknown, Suspicion::Likely),
        ]
    );
}

pub(super) fn a_late_act_of_a_lost_lease_is_refused(subject: &mut Subject) {
    subject.done(batch(1, vec![append(&stream("late", 0), "e")]));
    let lost = subject.claim(10, claim_of("late", "h", 1, 50)).remove(0).ticket;
    let held = subject.claim(60, claim_of("late", "h", 1, 100)).remove(0).ticket;
    let before = subject.table(Space::Claims);
    for act in [ack(61, &lost), release(61, &lost, 99)] {
        assert!(matches!(subject.commit(&[act]).as_slice(), [Outcome::Refused(_)]));
    }
    assert_eq!((subject.table(Space::Claims), subject.table(Space::Finished)), (before, vec![]));
    subject.done(ack(62, &held));
    assert!(matches!(subject.commit(&[ack(63, &held)]).as_slice(), [Outcome::Refused(_)]), "once only");
    assert_eq!((subject.table(Space::Claims).len(), subject.table(Space::Finished).len()), (0, 1));
    assert_eq!(subject.claim(1000, claim_of("late", "h", 1, 2000)), []);
}

pub(super) fn waiting_events_come_back_with_their_attempts(subject: &mut Subject) {
    let s = stream("waiting", 0);
    subject
        .done(batch(1, vec![append(&s, "first"), append(&s, "second"), append_priority(&s, "urgent", 500)]));
    let taken = subject.claim(10, claim_of("waiting", "h", 9, 50));
    assert_eq!(texts(&taken), ["urgent", "first", "second"]);
    for one in &taken {
        subject.done(release(
            20,
            &one.ticket,
            if texts(std::slice::from_ref(one)) == ["first"] { 31 } else { 30 },
        ));
    }
    subject.reopen();
    assert_eq!(subject.claim(29, claim_of("waiting", "h", 9, 99)), []);
    let again = subject.claim(30, claim_of("waiting", "h", 9, 99));
    assert_eq!(texts(&again), ["urgent", "second"]);
    let row = &again[0].ticket.row;
    assert_eq!((row.generation, row.attempts), (2, 1), "waiting costs no attempt");
    assert_eq!(texts(&subject.claim(31, claim_of("waiting", "h", 9, 99))), ["first"]);
    // A claim for another topic gets neither the two expired events nor the waiting one.
    assert_eq!(subject.claim(99, claim_of("elsewhere", "h", 9, 200)), []);
    assert_eq!(subject.claim(99, claim_of("waiting", "h", 1, 200))[0].ticket.row.attempts, 1);
}

pub(super) fn a_claim_sees_rows_of_this_commit_but_no_events(subject: &mut Subject) {
    let s = stream("within", 0);
    subject.done(batch(1, vec![append(&s, "old")]));
    let claim = || Op::Claim(claim_of("within", "h", 9, 50));
    let ops = vec![append(&s, "new"), append_priority(&s, "urgent", 900), claim(), append(&s, "newer")];
    let outcomes = subject.commit(&[batch(2, ops), batch(2, vec![claim()])]);
    let taken: Vec<Vec<&str>> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Done(done) => texts(&done.claimed),
            Outcome::Refused(_) => panic!("{outcome:?}"),
        })
        .collect();
    assert_eq!(taken, [vec!["old"], vec![]]);
    let next = subject.claim(3, claim_of("within", "h", 9, 50));
    assert_eq!(texts(&next), ["urgent", "new", "newer"]);
    // A row that an earlier operation of the batch deleted is not there any more.
    let key = next[1].ticket.key();
    let done = subject
        .all_done(batch(60, vec![delete(Space::Claims, &key), Op::Claim(claim_of("within", "h", 9, 99))]));
    assert_eq!(texts(&done.claimed), ["urgent", "old", "newer"]);
}

pub(super) fn a_claim_ends_at_its_byte_limit_but_takes_one(subject: &mut Subject) {
    let s = stream("bytes", 0);
    for text in ["a".repeat(300), "b".repeat(10), "c".repeat(10), "d".repeat(900)] {
        subject.done(batch(1, vec![append(&s, &text)]));
    }
    let sizes = |now, lease| {
        let claim = millrace_model::Claim { bytes_max: 250, ..claim_of("bytes", "h", 9, lease) };
        let done = subject.all_done(batch(now, vec![Op::Claim(claim)]));
        (done.claimed.iter().map(|one| one.ticket.offset.0).collect::<Vec<_>>(), done.more)
    };
    let expected = [(vec![1], true), (vec![2, 3], true), (vec![4], false)];
    assert_eq!([sizes(2, 50), sizes(2, 50), sizes(2, 50)], expected);
    assert_eq!([sizes(50, 90), sizes(50, 90), sizes(50, 90)], expected, "when they come back as well");
}

pub(super) fn a_plain_lane_passes_a_bounded_number_of_other_events(subject: &mut Subject) {
    let s = stream("skip", 0);
    for _ in 0..3 {
        subject.done(batch(1, (0..PASSED_OVER_MAX).map(|_| append_priority(&s, "slow", 7)).collect()));
    }
    subject.done(batch(2, vec![append(&s, "plain")]));
    let mut claims = 0;
    let first = loop {
        claims += 1;
        assert!(claims < 9, "the plain event is not found");
        let done = subject.all_done(batch(3, vec![Op::Claim(claim_of("skip", "h", 1, 50 + claims))]));
        match done.claimed.first() {
            Some(one) if one.event.body.priority.0 == 100 => break one.ticket.offset.0,
            _ => assert!(done.more, "there is more to look at"),
        }
    };
    assert_eq!(first, 3 * PASSED_OVER_MAX as u64 + 1);
    assert!(claims > 2, "one claim looks at a bounded number of events");
}

pub(super) fn lanes_can_begin_now(subject: &mut Subject) {
    let s = stream("now", 0);
    subject.done(batch(1, vec![append(&s, "old"), append_priority(&s, "old urgent", 900)]));
    let row = LaneRow::from_now(Offset(3));
    let key = keys::lane(&handler("h"), &s, None);
    subject.done(batch(2, vec![Op::PutNew { space: Space::Lanes, key, value: row.encode() }]));
    subject.done(batch(3, vec![append_priority(&s, "urgent", 900), append(&s, "new")]));
    assert_eq!(texts(&subject.claim(4, claim_of("now", "h", 9, 50))), ["urgent", "new"]);
    assert_eq!(subject.claim(4, claim_of("now", "i", 9, 50)).len(), 4);
    assert_eq!(topic("now").topic(), "now");
}
