//! POLL: timeouts, `max_events`, the flag `more`, room for the answer, and how fresh its events are.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Harness, NONE, READABLE, WRITABLE, arm, ids, poll, ready, timer};
use millrace_reactor::zcl1::{Frame, HEADER_BYTES};
use millrace_reactor::{
    Coverage, FirstDue, LoopLimits, MS, OUTPUT_BYTES_MIN, PollReply, PollTimeout, Request, Written, ZabiError,
};

const NOTHING: PollReply = PollReply { more: false, events: Vec::new() };

#[test]
fn a_poll_without_events_returns_none_at_its_timeout() {
    let mut harness = Harness::new();
    harness.polled(4, NONE);
    harness.watch(1, 4, READABLE).unwrap();
    for ms in [0, 5, 0x8000_0000, u32::MAX - 1] {
        let before = harness.now;
        assert_eq!(harness.poll_for(8, PollTimeout::Ms(ms)), NOTHING);
        assert_eq!(harness.now, before.after_ms(ms));
    }
}

#[test]
fn a_poll_that_waits_for_ever_waits_for_an_event() {
    let mut harness = Harness::new();
    let bytes = poll(8, PollTimeout::Forever).frame(1);
    assert_eq!(harness.try_write(&bytes), None, "nothing is watched and nothing is armed");
    assert_eq!(harness.sys_loop.next_deadline(), None);
    assert_eq!(
        harness.sys_loop.write(harness.now, &bytes, &mut harness.poller),
        Written::Returned(Err(ZabiError::Again)),
        "one POLL at a time"
    );
    harness.sys_loop.interrupt();
    assert_eq!(harness.sys_loop.next_deadline(), Some(harness.now));
    let resumed = harness.sys_loop.resume(harness.now, &bytes, &mut harness.poller);
    assert_eq!(resumed, Written::Returned(Ok(32)));
    assert_eq!(harness.read().map(|frame| frame.len()), Some(40), "an interrupted POLL returns no events");
}

#[test]
fn readiness_ends_a_wait() {
    for is_computed in [false, true] {
        let mut harness = Harness::new();
        let add = if is_computed { Harness::computed } else { Harness::polled };
        add(&mut harness, 4, NONE);
        harness.watch(1, 4, READABLE).unwrap();
        let bytes = poll(8, PollTimeout::Forever).frame(1);
        assert_eq!(harness.try_write(&bytes), None, "it waits");
        harness.set(4, READABLE);
        let (reports, coverage) = harness.poller.round(8);
        harness.sys_loop.observe(&reports, coverage, &mut harness.poller);
        let resumed = harness.sys_loop.resume(harness.now, &bytes, &mut harness.poller);
        assert_eq!(resumed, Written::Returned(Ok(32)));
        let reply = harness.read().unwrap();
        let reply = PollReply::decode(Frame::decode(&reply).unwrap().payload).unwrap();
        assert_eq!(reply.events, [ready(1, 4, READABLE)]);
    }
}

#[test]
fn an_earlier_timer_shortens_the_wait_and_a_later_one_does_not_lengthen_it() {
    let mut harness = Harness::new();
    let start = harness.now;
    harness.arm(1, FirstDue::After(3 * MS), 0).unwrap();
    harness.arm(2, FirstDue::After(90 * MS), 0).unwrap();
    assert_eq!(ids(&harness.poll_for(8, PollTimeout::Ms(10))), [1]);
    assert_eq!(harness.now, start.after_ms(3));
    assert_eq!(harness.poll_for(8, PollTimeout::Ms(10)), NOTHING);
    assert_eq!(harness.now, start.after_ms(13));
}

#[test]
fn at_most_max_events_are_returned_and_the_others_follow() {
    let mut harness = Harness::new();
    for number in 3..13 {
        harness.polled(number, READABLE);
        harness.watch(u64::from(number), number, READABLE).unwrap();
    }
    let mut seen = Vec::new();
    for (count, more) in [(4, true), (4, true)] {
        let reply = harness.poll(4);
        assert_eq!((reply.events.len(), reply.more), (count, more));
        seen.extend(ids(&reply));
    }
    let reply = harness.poll(4);
    assert!(reply.more, "watches that were reported are ready again");
    seen.extend(&ids(&reply)[..2]);
    assert_eq!(seen, (3..13).collect::<Vec<u64>>());
}

#[test]
fn the_flag_more_is_exact() {
    let mut harness = Harness::new();
    harness.computed(4, READABLE);
    harness.polled(5, READABLE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.watch(2, 5, READABLE).unwrap();
    harness.arm(3, FirstDue::After(0), 0).unwrap();
    harness.arm(4, FirstDue::After(0), MS).unwrap();
    for (max_events, more) in [(4, false), (4, false)] {
        let reply = harness.poll(max_events);
        assert_eq!(reply.more, more, "{reply:?}");
        harness.arm(3, FirstDue::After(0), 0).unwrap();
        harness.advance_ns(MS);
    }
    assert!(harness.poll(3).more, "one event did not fit");
    assert_eq!(harness.poll(4).events.len(), 3, "the one that did not fit, and the two watches");
    assert!(!harness.poll(2).more, "as many events as fit, and no other");
}

#[test]
fn nothing_is_lost_if_max_events_is_small() {
    let mut harness = Harness::new();
    for id in 1..=100 {
        harness.arm(id, FirstDue::After(id), 0).unwrap();
    }
    harness.advance_ns(1000);
    let mut seen = Vec::new();
    for left in (0..100).rev() {
        let reply = harness.poll(1);
        assert_eq!(reply.more, left > 0);
        seen.extend(ids(&reply));
    }
    assert_eq!(seen, (1..=100).collect::<Vec<u64>>());
    assert_eq!(harness.poll(1), NOTHING);
}

#[test]
fn a_huge_max_events_is_capped_by_the_frame_and_loses_nothing() {
    let mut harness = Harness::new();
    for id in 1..=3000 {
        harness.arm(id, FirstDue::After(0), 0).unwrap();
    }
    let reply = harness.poll(u32::MAX);
    assert_eq!((reply.events.len(), reply.more), (2046, true));
    let reply = harness.poll(4096);
    assert_eq!((reply.events.len(), reply.more), (954, false));
}

#[test]
fn ready_events_come_before_timers() {
    let mut harness = Harness::new();
    harness.polled(4, READABLE);
    harness.arm(1, FirstDue::After(0), 0).unwrap();
    harness.watch(1, 4, READABLE).unwrap();
    assert_eq!(harness.poll(8).events, [ready(1, 4, READABLE), timer(1, harness.now)]);
}

#[test]
fn a_poll_reports_what_is_so_and_not_what_was() {
    let mut harness = Harness::new();
    for number in 4..10 {
        harness.polled(number, READABLE);
        harness.watch(u64::from(number), number, READABLE).unwrap();
    }
    assert_eq!(ids(&harness.poll(2)), [4, 5]);
    for number in 6..9 {
        harness.set(number, NONE);
    }
    let reply = harness.poll(8);
    assert_eq!((ids(&reply), reply.more), (vec![9, 4, 5], false), "6, 7 and 8 are not ready any more");
}

#[test]
fn after_a_partial_round_nothing_is_forgotten() {
    let mut harness = Harness::new();
    harness.reports_max = 4;
    for number in 3..103 {
        harness.polled(number, READABLE);
        harness.watch(u64::from(number), number, READABLE).unwrap();
    }
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..50 {
        seen.extend(ids(&harness.poll(4)));
    }
    seen.sort_unstable();
    let twice: Vec<u64> = (3..103).flat_map(|id| [id, id]).collect();
    assert_eq!(seen, twice, "every watch twice in 50 POLLs of 4");
}

#[test]
fn a_poll_whose_answer_has_no_room_is_refused_before_it_executes() {
    let mut harness =
        Harness::with(LoopLimits { output_bytes_max: OUTPUT_BYTES_MIN, ..LoopLimits::default() });
    harness.arm(1, FirstDue::After(0), 0).unwrap();
    harness.advance_ns(1);
    let filler = arm(2, FirstDue::After(1000 * MS), 0).frame(9);
    while harness.write(&filler) == Ok(filler.len()) {}
    assert_eq!(harness.write(&filler), Err(ZabiError::Again));
    let bytes = poll(8, PollTimeout::Ms(0)).frame(10);
    assert_eq!(harness.write(&bytes), Err(ZabiError::Again));
    assert_eq!(harness.sys_loop.gauges().timers, 2, "the due timer was not taken");
    assert_eq!(harness.sys_loop.counters().polls, 0);
    let replies = harness.read_all();
    assert!(replies.len() > 30 && replies.iter().all(|reply| reply.len() == HEADER_BYTES));
    assert_eq!(ids(&harness.poll(8)), [1], "and it is delivered once there is room");
}

#[test]
fn a_poll_with_little_room_returns_fewer_events_and_says_more() {
    let mut harness =
        Harness::with(LoopLimits { output_bytes_max: OUTPUT_BYTES_MIN, ..LoopLimits::default() });
    for id in 1..=100 {
        harness.arm(id, FirstDue::After(0), 0).unwrap();
    }
    let reply = harness.poll(100);
    assert_eq!((reply.events.len(), reply.more), (30, true), "(1024 - 40) / 32");
    assert_eq!(harness.poll(20).events.len(), 20);
}

#[test]
fn a_write_of_several_requests_is_consumed_as_far_as_answers_have_room() {
    let mut harness =
        Harness::with(LoopLimits { output_bytes_max: OUTPUT_BYTES_MIN, ..LoopLimits::default() });
    let one = arm(1, FirstDue::After(MS), 0).frame(1);
    let all = one.repeat(100);
    let consumed = harness.write(&all).unwrap();
    assert!(consumed < all.len() && consumed.is_multiple_of(one.len()), "{consumed}: whole requests");
    assert_eq!(harness.write(&all[consumed..]), Err(ZabiError::Again), "nothing of it");
    assert_eq!(harness.read_all().len(), consumed / one.len());
    assert_eq!(harness.write(&all[consumed..consumed + one.len()]), Ok(one.len()));
}

#[test]
fn requests_behind_a_poll_in_one_write_are_executed_after_it() {
    let mut harness = Harness::new();
    harness.polled(4, NONE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.arm(1, FirstDue::After(7 * MS), 0).unwrap();
    let requests: [Request; 3] =
        [poll(8, PollTimeout::Forever), arm(2, FirstDue::After(0), 0), poll(8, PollTimeout::Ms(0))];
    let bytes: Vec<u8> = requests.iter().zip(1..).flat_map(|(request, rid)| request.frame(rid)).collect();
    assert_eq!(harness.write(&bytes), Ok(bytes.len()));
    let replies = harness.read_all();
    let payload = |index: usize| Frame::decode(&replies[index]).unwrap().payload.to_vec();
    assert_eq!(PollReply::decode(&payload(0)).unwrap().events, [timer(1, harness.now)]);
    assert_eq!(payload(1), []);
    assert_eq!(PollReply::decode(&payload(2)).unwrap().events, [timer(2, harness.now)]);
}

#[test]
fn an_interrupt_before_a_poll_ends_the_next_one() {
    let mut harness = Harness::new();
    harness.polled(4, NONE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.sys_loop.interrupt();
    assert_eq!(harness.poll_for(8, PollTimeout::Forever), NOTHING);
    assert_eq!(harness.try_write(&poll(8, PollTimeout::Forever).frame(1)), None, "and only one");
}

#[test]
fn a_write_above_its_bound_consumes_nothing() {
    let mut harness = Harness::new();
    let bytes = poll(1, PollTimeout::Ms(0)).frame(1);
    assert_eq!(harness.write(&bytes[..10]), Ok(10));
    assert_eq!(harness.write(&vec![0; 65_537]), Err(ZabiError::Bounds));
    assert_eq!(harness.write(&bytes[10..]), Ok(22), "the frame in hand was kept");
    assert_eq!(harness.write(&[]), Ok(0));
    assert_eq!(harness.read_all().len(), 1);
}

#[test]
fn the_cost_of_a_poll_does_not_grow_with_idle_watches_and_timers() {
    let mut examined = Vec::new();
    for idle in [10, 1_000, 100_000] {
        let mut harness = Harness::new();
        for number in 10..10 + idle {
            harness.polled(number, NONE);
            let bytes = harness::watch(u64::from(number), number, READABLE).frame(1);
            harness.sys_loop.write(harness.now, &bytes, &mut harness.poller);
            let bytes = arm(u64::from(number), FirstDue::After(1000 * MS), 0).frame(2);
            harness.sys_loop.write(harness.now, &bytes, &mut harness.poller);
            harness.read_all();
        }
        harness.polled(4, READABLE | WRITABLE);
        harness.watch(1, 4, READABLE).unwrap();
        let before = harness.sys_loop.counters().watches_examined;
        for _ in 0..10 {
            assert_eq!(harness.poll(16).events, [ready(1, 4, READABLE)]);
        }
        examined.push(harness.sys_loop.counters().watches_examined - before);
    }
    assert_eq!(examined, [20; 3], "each POLL: one report, one delivery");
}

#[test]
fn a_round_that_reports_nothing_ends_no_poll() {
    let mut harness = Harness::new();
    harness.polled(4, NONE);
    harness.watch(1, 4, READABLE).unwrap();
    let bytes = poll(8, PollTimeout::Ms(10)).frame(1);
    let now = harness.now;
    assert_eq!(harness.sys_loop.write(now, &bytes, &mut harness.poller), Written::Waiting);
    for ms in 0..10 {
        harness.sys_loop.observe(&[], Coverage::All, &mut harness.poller);
        let resumed = harness.sys_loop.resume(now.after_ms(ms), &bytes, &mut harness.poller);
        assert_eq!(resumed, Written::Waiting, "spurious wake-ups are not the guest's concern");
        assert_eq!(harness.sys_loop.next_deadline(), Some(now.after_ms(10)));
    }
    let resumed = harness.sys_loop.resume(now.after_ms(10), &bytes, &mut harness.poller);
    assert_eq!(resumed, Written::Returned(Ok(32)));
}
