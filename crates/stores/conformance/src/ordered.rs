//! Claims in order of keys: events of a key one at a time, in the order of the log.

use millrace_model::{
    Claim, ClaimRow, ClaimState, Claimed, HandlerOrder, LaneRow, Op, OrderKey, Space, Stream, Ticket,
    Timestamp, keys,
};

use crate::Subject;
use crate::build::{
    ack, append_keyed, append_priority, batch, claim_of, delete, handler, release, stream, trim,
};
use crate::claims::texts;
use millrace_resolve::{OPEN_MAX, PASSED_OVER_MAX};

fn by_key(name: &str, events_max: usize, lease_until: u64) -> Claim {
    Claim { order: HandlerOrder::Key, ..claim_of(name, "h", events_max, lease_until) }
}

/// Publishes an event per text. The letters of a text are the event's key; a text without letters has no key.
fn publish(subject: &Subject, stream: &Stream, now: u64, texts: &[&str]) {
    for text in texts {
        let key = text.trim_end_matches(|end: char| end.is_ascii_digit());
        subject
            .done(batch(now, vec![append_keyed(stream, text, Some(key).filter(|key| !key.is_empty()), 100)]));
    }
}

fn ticket(claimed: &[Claimed], text: &str) -> Ticket {
    let found = claimed.iter().find(|one| texts(std::slice::from_ref(one)) == [text]);
    found.unwrap_or_else(|| panic!("{text} is not among {:?}", texts(claimed))).ticket.clone()
}

pub(super) fn a_key_has_one_event_at_a_time_in_the_order_of_the_log(subject: &mut Subject) {
    let s = stream("keyed", 0);
    publish(subject, &s, 1, &["a1", "b1", "a2", "1", "b2", "2", "a3"]);
    let first = subject.all_done(batch(10, vec![Op::Claim(by_key("keyed", 9, 50))]));
    assert_eq!((texts(&first.claimed), first.more), (vec!["a1", "b1", "1", "2"], false));
    assert_eq!(first.claimed[0].ticket.row.order_key, Some(OrderKey::of(Some("a"))));
    subject.reopen();
    let idle = subject.all_done(batch(11, vec![Op::Claim(by_key("keyed", 9, 50))]));
    assert_eq!((idle.claimed.len(), idle.more), (0, false));
    // The commit that ends an event claims the next one of its key.
    let mut done = ack(12, &ticket(&first.claimed, "a1"));
    done.ops.push(Op::Claim(by_key("keyed", 9, 60)));
    let second = subject.all_done(done).claimed;
    assert_eq!(texts(&second), ["a2"]);
    let row = &second[0].ticket.row;
    assert_eq!((row.generation, row.attempts), (1, 0), "to wait behind a key is no claim");
    // An event that waits for a retry holds back its own key only.
    subject.done(release(13, &ticket(&first.claimed, "b1"), 40));
    subject.done(ack(14, &second[0].ticket));
    let third = subject.claim(39, by_key("keyed", 9, 60));
    assert_eq!(texts(&third), ["a3"]);
    let retried = subject.claim(40, by_key("keyed", 9, 60));
    assert_eq!((texts(&retried), retried[0].ticket.row.attempts), (vec!["b1"], 1));
    // An event whose lease has expired also holds back its key, until another session has claimed it and ended it.
    let again = subject.claim(60, by_key("keyed", 9, 90));
    assert_eq!(texts(&again), ["b1", "1", "2", "a3"]);
    subject.done(ack(61, &ticket(&again, "b1")));
    assert_eq!(texts(&subject.claim(62, by_key("keyed", 9, 90))), ["b2"]);
    assert_eq!(subject.table(Space::Lanes).len(), 1);
}

pub(super) fn order_of_keys_wins_over_priority(subject: &mut Subject) {
    let s = stream("urgent", 0);
    for (text, priority) in [("a1", 100), ("a2", 900), ("b1", 7), ("c1", 1000), ("b2", 500)] {
        subject.done(batch(1, vec![append_keyed(&s, text, Some(&text[..1]), priority)]));
    }
    let taken = subject.claim(10, by_key("urgent", 2, 50));
    assert_eq!(texts(&taken), ["a1", "b1"]);
    let rest = subject.claim(10, by_key("urgent", 9, 50));
    assert_eq!(texts(&rest), ["c1"]);
    subject.done(ack(11, &taken[0].ticket));
    subject.done(ack(11, &taken[1].ticket));
    assert_eq!(texts(&subject.claim(12, by_key("urgent", 9, 50))), ["a2", "b2"]);
}

pub(super) fn the_order_of_a_handler_can_be_switched(subject: &mut Subject) {
    let s = stream("switched", 0);
    // Claims in order of priority advance the plain lane past events that they leave in lanes of lower priority.
    for n in 0..12u64 {
        let (text, key) = (n.to_string(), if n % 2 == 0 { "even" } else { "odd" });
        let priority = [100, 7, 900][n as usize % 3];
        subject.done(batch(1, vec![append_keyed(&s, &text, Some(key), priority)]));
    }
    let free = subject.claim(10, claim_of("switched", "h", 7, 50));
    assert_eq!(texts(&free), ["2", "5", "8", "11", "0", "3", "6"]);
    // Both keys are open. The rows of claims by priority do not name the keys, so the claim reads them from the events.
    assert_eq!(subject.claim(11, by_key("switched", 9, 50)), []);
    free.iter().for_each(|one| drop(subject.done(ack(12, &one.ticket))));
    let ordered = subject.claim(13, by_key("switched", 9, 50));
    assert_eq!(texts(&ordered), ["1", "4"]);
    ordered.iter().for_each(|one| drop(subject.done(ack(14, &one.ticket))));
    subject.reopen();
    // Back to the order of priority: the events that wait behind their keys are due at once.
    let rest = subject.claim(15, claim_of("switched", "h", 9, 50));
    assert_eq!(texts(&rest), ["9", "7", "10"], "the plain one first");
    assert_eq!(subject.claim(15, claim_of("switched", "h", 9, 50)), []);
    assert_eq!(subject.claim(15, by_key("switched", 9, 50)), []);
    let row = LaneRow { next: millrace_model::Offset(13), off: millrace_model::Offset(13) };
    let expected =
        format!("{}={}", keys::lane(&handler("h"), &s, None), String::from_utf8_lossy(&row.encode()));
    assert_eq!(subject.table(Space::Lanes), [expected], "one row, at the end");
}

pub(super) fn events_without_a_row_of_their_lane_are_taken_once_in_order_of_keys(subject: &mut Subject) {
    let s = stream("rowless", 0);
    let given = [("1", 7), ("2", 100), ("3", 100), ("4", 7), ("5", 7), ("6", 900)];
    for (text, priority) in given {
        subject.done(batch(1, vec![append_priority(&s, text, priority)]));
    }
    // The lane rows of these two events are lost, so the events belong to the plain lane.
    let rows = subject.table(Space::OffPriority);
    let lost = rows.iter().filter_map(|row| row.split_once('=')).map(|(key, _)| key);
    let lost: Vec<_> = lost.filter(|key| key.ends_with('1') || key.ends_with('4')).collect();
    assert_eq!(lost.len(), 2, "{rows:?}");
    lost.iter().for_each(|key| drop(subject.done(batch(2, vec![delete(Space::OffPriority, key)]))));
    let free = subject.claim(10, claim_of("rowless", "h", 3, 50));
    assert_eq!(texts(&free), ["6", "1", "2"]);
    assert_eq!(texts(&subject.claim(11, by_key("rowless", 9, 50))), ["3", "4", "5"]);
    assert_eq!(subject.claim(11, claim_of("rowless", "h", 9, 50)), []);
}

pub(super) fn an_event_that_is_opened_again_is_the_next_of_its_key(subject: &mut Subject) {
    let s = stream("reopened", 0);
    publish(subject, &s, 1, &["a1", "a2", "a3"]);
    let first = subject.claim(10, by_key("reopened", 9, 50)).remove(0);
    subject.done(ack(11, &first.ticket));
    let second = subject.claim(12, by_key("reopened", 9, 50)).remove(0);
    // A replay of the event's dead letter opens the claim again like this.
    let waiting = ClaimRow { state: ClaimState::Waiting, due: Timestamp(13), ..first.ticket.row.clone() };
    let opened = Ticket { row: waiting, ..first.ticket.clone() };
    subject.done(batch(13, vec![opened.put()]));
    assert_eq!(subject.claim(14, by_key("reopened", 9, 50)), [], "a2 is held");
    subject.done(release(15, &second.ticket, 30));
    let again = subject.claim(30, by_key("reopened", 9, 50));
    assert_eq!(texts(&again), ["a1"], "the lower offset goes first");
    assert_eq!(subject.claim(31, by_key("reopened", 9, 50)), []);
    subject.done(ack(32, &again[0].ticket));
    assert_eq!(texts(&subject.claim(33, by_key("reopened", 9, 50))), ["a2"]);
}

pub(super) fn a_key_in_two_partitions_has_one_event_at_a_time(subject: &mut Subject) {
    let (old, new) = (stream("grown", 4), stream("grown", 1));
    publish(subject, &old, 1, &["a1", "a2"]);
    // The old partition gets so many other events that a single claim does not reach its end.
    subject
        .done(batch(2, (0..2 * PASSED_OVER_MAX).map(|_| append_keyed(&old, "a", Some("a"), 100)).collect()));
    publish(subject, &old, 3, &["b1"]);
    publish(subject, &new, 4, &["b2", "a3"]);
    let mut taken = Vec::new();
    for round in 0.. {
        let done = subject.all_done(batch(10, vec![Op::Claim(by_key("grown", 300, 50))]));
        taken.extend(done.claimed);
        if !done.more {
            break;
        }
        assert!(round < 9, "claims do not come to an end");
    }
    assert_eq!(texts(&taken), ["a1", "b1"]);
    subject.done(ack(11, &taken[1].ticket));
    subject.done(ack(11, &taken[0].ticket));
    assert_eq!(texts(&subject.claim(12, by_key("grown", 9, 50))), ["a2", "b2"]);
}

pub(super) fn events_that_are_gone_hold_back_no_key(subject: &mut Subject) {
    let s = stream("gap", 0);
    publish(subject, &s, 1, &["a1", "a2", "a3", "a4"]);
    let first = subject.claim(10, by_key("gap", 9, 50)).remove(0);
    subject.done(batch(11, vec![trim(&s, 4)]));
    subject.done(ack(12, &first.ticket));
    let done = subject.all_done(batch(13, vec![Op::Claim(by_key("gap", 1, 50))]));
    assert!(done.claimed.is_empty() && done.more, "a2 is lost, and there may be more: {done:?}");
    subject.claim(13, by_key("gap", 1, 50));
    assert_eq!(texts(&subject.claim(13, by_key("gap", 1, 50))), ["a4"]);
    assert_eq!(subject.table(Space::Claims).len(), 1);
}

pub(super) fn a_handler_with_too_much_open_takes_nothing_new(subject: &mut Subject) {
    let s = stream("hot", 0);
    let hot = OPEN_MAX + 2;
    for from in (0..hot).step_by(1000) {
        let many = (from..hot.min(from + 1000)).map(|_| append_keyed(&s, "hot", Some("hot"), 100));
        subject.done(batch(1, many.collect()));
    }
    subject
        .done(batch(2, vec![append_keyed(&s, "cold", Some("cold"), 100), append_priority(&s, "none", 100)]));
    let mut held = Vec::new();
    for round in 0.. {
        let done = subject.all_done(batch(10, vec![Op::Claim(by_key("hot", 99, 50))]));
        held.extend(done.claimed);
        if !done.more {
            break;
        }
        assert!(round < 9, "claims do not come to an end");
    }
    assert_eq!((texts(&held), subject.table(Space::Claims).len()), (vec!["hot"], OPEN_MAX));
    // Each claim that ends makes room for another one.
    for expected in [vec!["hot"], vec!["hot"], vec!["hot", "cold"], vec!["hot", "none"]] {
        let mut done = ack(11, &held[0].ticket);
        done.ops.push(Op::Claim(by_key("hot", 99, 50)));
        held = subject.all_done(done).claimed;
        assert_eq!(texts(&held), expected);
    }
}
