//! The lead: who takes it, when, and what becomes of the server that had it.

#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;
use std::thread;

use harness::clock::{DAY, HOUR, MINUTE};
use harness::machine::{
    LEAD_TIMEOUT, Machine, crash, event, folded, heads, memory, offset_of, publish, texts,
};
use harness::wire::{Moment, unknown};
use millrace_conformance::build::{batch, delete};
use millrace_conformance::journal::JournalCall;
use millrace_journal::MemoryJournal;
use millrace_model::{Offset, Space};
use millrace_store::{Store, StoreError};
use millrace_store_journal::{JournalStore, LEAD_KEY, Role};

fn two() -> (Arc<MemoryJournal>, Machine, Machine) {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    (journal, one, other)
}

fn is_deposed<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(error @ StoreError::Deposed(_)) => error.wrote_nothing(),
        other => panic!("{other:?}"),
    }
}

fn is_place(call: JournalCall) -> bool {
    matches!(call, JournalCall::Place { .. })
}

/// Lets `next` take the lead from a leader that is silent.
fn take_over(machine: &Machine, next: &JournalStore) {
    next.follow().unwrap();
    machine.clock.pass(LEAD_TIMEOUT);
    assert!(next.try_lead().unwrap());
}

#[test]
fn a_free_lead_is_taken_at_once() {
    let (journal, one, other) = two();
    let store = one.lead();
    assert_eq!((store.status().role, store.status().term), (Role::Leader, 1));
    assert!(store.try_lead().unwrap(), "whoever leads still leads");
    assert_eq!(heads(&*journal).len(), 1, "asking again writes nothing");
    let follower = other.open();
    assert!(!follower.try_lead().unwrap());
    assert_eq!(follower.status().role, Role::Follower);
    assert!(is_deposed(publish(&follower, "not the leader")));
    assert_eq!(follower.ended(), None, "a follower that never led goes on");
}

#[test]
fn nobody_takes_the_lead_while_the_leader_beats() {
    let (journal, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    for _ in 0..60 {
        one.clock.pass(LEAD_TIMEOUT / 3);
        other.clock.pass(LEAD_TIMEOUT / 3);
        leader.keep();
        follower.keep();
        assert!(!follower.try_lead().unwrap());
    }
    assert!(heads(&*journal).len() > 30, "an idle leader beats");
    assert!(leader.leads() && heads(&*journal).iter().all(|head| head.term == 1));
}

#[test]
fn a_silent_leader_is_replaced_after_the_timeout_and_not_before() {
    let (journal, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    publish(&leader, "first").unwrap();
    follower.follow().unwrap();
    other.clock.pass(LEAD_TIMEOUT - 1);
    assert!(!follower.try_lead().unwrap());
    other.clock.pass(1);
    assert!(follower.try_lead().unwrap());
    assert_eq!(follower.status().term, 2);
    assert_eq!(publish(&follower, "second").unwrap(), Offset(2));

    let before = heads(&*journal).len();
    assert!(is_deposed(publish(&leader, "too late")));
    assert!(is_deposed(publish(&leader, "too late again")));
    assert_eq!(heads(&*journal).len(), before, "nothing was written");
    assert!(matches!(leader.ended(), Some(StoreError::Deposed(_))));
    assert_eq!(folded(&journal), ["first", "second"]);
}

/// The age of the newest record is not known to a server that has just started: the leader gets the whole timeout.
#[test]
fn a_server_that_starts_gives_the_leader_the_whole_timeout() {
    let (_, one, other) = two();
    let _leader = one.lead();
    other.clock.pass(DAY);
    let follower = other.open();
    assert!(!follower.try_lead().unwrap());
    other.clock.pass(LEAD_TIMEOUT - 1);
    assert!(!follower.try_lead().unwrap());
}

#[test]
fn of_two_candidates_one_wins() {
    let journal = memory();
    let [one, two, three] = [(); 3].map(|()| Machine::new(&journal));
    let (leader, candidate, rival) = (one.lead(), two.open(), three.open());
    for clock in [&two.clock, &three.clock] {
        clock.pass(LEAD_TIMEOUT);
    }
    let racing = rival.clone();
    two.wire.once_before(is_place, move || assert!(racing.try_lead().unwrap()));
    assert!(!candidate.try_lead().unwrap());
    assert_eq!((candidate.status().role, rival.status().role), (Role::Follower, Role::Leader));
    assert_eq!(candidate.ended(), None);
    assert!(is_deposed(publish(&leader, "deposed")));
    publish(&rival, "of the winner").unwrap();
    assert_eq!(folded(&journal), ["of the winner"]);
    assert_eq!(heads(&*journal).iter().map(|head| head.term).collect::<Vec<_>>(), [1, 2, 2]);
}

/// The leader was only slow: its record arrives while another server is about to take the lead.
#[test]
fn a_sign_of_life_at_the_last_moment_keeps_the_lead() {
    let (journal, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    other.clock.pass(LEAD_TIMEOUT);
    let alive = leader.clone();
    other.wire.once_before(is_place, move || {
        publish(&alive, "alive").unwrap();
    });
    assert!(!follower.try_lead().unwrap());
    publish(&leader, "goes on").unwrap();
    assert_eq!(folded(&journal), ["alive", "goes on"]);
    assert!(heads(&*journal).iter().all(|head| head.term == 1));
}

#[test]
fn a_leader_that_was_paused_finds_out_at_its_next_commit_or_beat() {
    for is_idle in [false, true] {
        let (journal, one, other) = two();
        let (leader, follower) = (one.lead(), other.open());
        publish(&leader, "before").unwrap();
        one.clock.pass(HOUR);
        take_over(&other, &follower);
        publish(&follower, "of the next").unwrap();
        let before = heads(&*journal).len();
        if is_idle {
            leader.keep();
        } else {
            assert!(is_deposed(publish(&leader, "late")));
        }
        assert!(matches!(leader.ended(), Some(StoreError::Deposed(_))), "{:?}", leader.ended());
        assert_eq!(heads(&*journal).len(), before);
        drop(leader);
        assert!(follower.leads() && publish(&follower, "still leads").is_ok());
        // Started over, it follows.
        let again = one.open();
        assert_eq!(texts(&again), ["before", "of the next", "still leads"]);
        assert!(!again.try_lead().unwrap());
    }
}

/// The pause begins after the commit was resolved, right before its record is placed.
#[test]
fn a_leader_paused_in_the_middle_of_a_commit_writes_nothing() {
    for others in 0..3 {
        let (journal, one, other) = two();
        let (leader, follower) = (one.lead(), other.open());
        publish(&leader, "first").unwrap();
        follower.follow().unwrap();
        let (next, clock) = (follower.clone(), other.clock.clone());
        one.wire.once_before(is_place, move || {
            clock.pass(LEAD_TIMEOUT);
            assert!(next.try_lead().unwrap());
            for n in 0..others {
                publish(&next, &format!("other {n}")).unwrap();
            }
        });
        assert!(is_deposed(publish(&leader, "late")));
        assert_eq!(folded(&journal).len(), 1 + others);
        assert!(!folded(&journal).contains(&"late".to_owned()));
    }
}

#[test]
fn a_lead_that_was_given_back_is_taken_at_once() {
    let (journal, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    let before = heads(&*journal).len();
    leader.step_down().unwrap();
    leader.step_down().unwrap();
    assert_eq!(heads(&*journal).len(), before + 1, "one commit hands it over");
    assert_eq!((leader.status().role, leader.ended()), (Role::Follower, None));
    assert!(follower.try_lead().unwrap());
    assert_eq!(follower.status().term, 2);
    assert!(is_deposed(publish(&leader, "no")));
    assert_eq!(leader.ended(), None, "it gave the lead back itself, and may lead again");
    drop(follower);
    assert!(leader.try_lead().unwrap(), "dropping a handle gives the lead back");
    assert_eq!(leader.status().term, 3);
    drop(leader);
    assert!(!one.open().status().is_led);
}

#[test]
fn serving_is_refused_while_somebody_leads_and_names_the_leader() {
    let journal = memory();
    let one = Machine::new(&journal).with(|settings| settings.url = "http://one:7070".into());
    let other = Machine::new(&journal);
    let (leader, follower) = (one.open(), other.open());
    leader.claim_serving().unwrap();
    other.clock.pass(DAY);
    let refused = follower.claim_serving().unwrap_err();
    assert!(
        matches!(&refused, StoreError::InUse(cause) if cause.text().contains("http://one:7070 leads, term 1"))
    );
    assert!(follower.is_served_elsewhere() && !leader.is_served_elsewhere());
    assert_eq!(follower.status().leader_url.as_deref(), Some("http://one:7070"));
    leader.step_down().unwrap();
    follower.claim_serving().unwrap();
}

#[test]
fn wrong_wall_clocks_change_nothing() {
    for (ahead, behind) in [(HOUR, 0), (30 * DAY, 0), (0, HOUR), (0, 30 * DAY)] {
        let (journal, one, other) = two();
        let (leader, follower) = (one.lead(), other.open());
        one.clock.pass_wall(behind);
        other.clock.pass_wall(ahead);
        publish(&leader, "first").unwrap();
        other.clock.set_back(behind);
        assert!(!follower.try_lead().unwrap());
        one.clock.pass_wall(ahead);
        leader.keep();
        follower.keep();
        assert!(!follower.try_lead().unwrap());
        publish(&leader, "second").unwrap();
        take_over(&other, &follower);
        one.clock.set_back(ahead);
        assert!(is_deposed(publish(&leader, "late")));
        publish(&follower, "third").unwrap();
        assert_eq!(folded(&journal), ["first", "second", "third"]);
    }
}

#[test]
fn a_follower_that_cannot_read_the_journal_never_takes_over() {
    let (journal, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    other.wire.cut();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| follower.try_lead());
        let enough = other.clock.mono() + 20 * LEAD_TIMEOUT;
        while other.clock.mono() < enough {
            thread::yield_now();
        }
        assert!(!waiting.is_finished());
        assert_eq!(heads(&*journal).len(), 1);
        assert!(follower.status().unreachable.is_some());
        follower.close();
        assert!(matches!(waiting.join().unwrap(), Err(StoreError::Closed(_))));
    });
    publish(&leader, "goes on").unwrap();
}

/// An engine that was away for everybody: when it is back, the leader has the rest of its timeout.
#[test]
fn the_time_in_which_the_journal_cannot_be_read_is_no_silence_of_the_leader() {
    let (_, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    let (clock, mut losses) = (other.clock.clone(), 3);
    other.wire.on(move |call, moment| {
        let is_lost = matches!(call, JournalCall::Read { .. }) && moment == Moment::Before && losses > 0;
        losses -= i32::from(is_lost);
        is_lost.then(|| {
            clock.pass(HOUR);
            unknown("away")
        })
    });
    assert!(!follower.try_lead().unwrap());
    publish(&leader, "back").unwrap();
    assert!(!follower.try_lead().unwrap());
    // Real silence still counts.
    other.clock.pass(LEAD_TIMEOUT);
    assert!(follower.try_lead().unwrap());
}

#[test]
fn a_leader_that_cannot_place_for_long_goes_on_if_the_row_is_still_its_own() {
    for is_answer_lost in [false, true] {
        let (journal, one, other) = two();
        let (leader, follower) = (one.lead(), other.open());
        publish(&leader, "before").unwrap();
        let (clock, mut losses) = (one.clock.clone(), 5);
        one.wire.on(move |call, moment| {
            let at = if is_answer_lost { Moment::After } else { Moment::Before };
            let is_lost = is_place(call) && moment == at && losses > 0;
            losses -= i32::from(is_lost);
            is_lost.then(|| {
                clock.pass(10 * MINUTE);
                unknown("away")
            })
        });
        assert_eq!(publish(&leader, "after").unwrap(), Offset(2));
        assert!(leader.leads() && leader.status().unreachable.is_none());
        assert!(leader.status().engine_failures >= 1);
        follower.follow().unwrap();
        assert_eq!(texts(&follower), ["before", "after"]);
        assert_eq!(folded(&journal).len(), 2, "an answer that was lost stores nothing twice");
    }
}

/// The engine goes away while a handle that is dropped gives its lead back.
#[test]
fn dropping_a_handle_does_not_wait_for_ever() {
    let (journal, one, other) = two();
    let leader = one.lead();
    one.wire.on(|call, _| is_place(call).then(|| unknown("away")));
    drop(leader);
    // The record may have arrived, or not: the lead is free now or after the timeout.
    let follower = other.open();
    other.clock.pass(LEAD_TIMEOUT);
    assert!(follower.try_lead().unwrap());
    assert!(heads(&*journal).len() <= 3);
}

#[test]
fn terms_rise_although_somebody_has_deleted_the_row() {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let tool = Machine::new(&journal).free();
    let leader = one.lead();
    leader.step_down().unwrap();
    assert!(leader.try_lead().unwrap());
    let follower = other.open();
    tool.open().commit(&[batch(1, vec![delete(Space::Kv, LEAD_KEY)])]).unwrap();
    assert!(follower.try_lead().unwrap());
    assert_eq!(follower.status().term, 3);
    assert!(is_deposed(publish(&leader, "late")));
}

/// A leader whose process was killed: the row stays until the timeout, also for its own successor on the same machine.
#[test]
fn a_leader_that_crashed_is_replaced_after_the_timeout() {
    let (journal, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    publish(&leader, "confirmed").unwrap();
    crash(leader);
    let again = one.open();
    assert!(!again.try_lead().unwrap());
    assert!(!follower.try_lead().unwrap());
    one.clock.pass(LEAD_TIMEOUT);
    assert!(again.try_lead().unwrap());
    assert!(!follower.try_lead().unwrap());
    assert_eq!(publish(&again, "next").unwrap(), Offset(2));
    assert_eq!(folded(&journal), ["confirmed", "next"]);
}

/// Commits of several records are fenced record by record.
#[test]
fn a_large_commit_that_loses_the_lead_halfway_does_not_say_that_nothing_was_written() {
    let (journal, one, other) = two();
    let (leader, follower) = (one.lead(), other.open());
    let large = "x".repeat(7 << 20);
    let (next, clock, mut places) = (follower.clone(), other.clock.clone(), 0);
    one.wire.on(move |call, moment| {
        places += usize::from(is_place(call) && moment == Moment::Before);
        if places == 2 && moment == Moment::Before {
            places += 1;
            clock.pass(LEAD_TIMEOUT);
            next.follow().unwrap();
            clock.pass(LEAD_TIMEOUT);
            assert!(next.try_lead().unwrap());
        }
        None
    });
    let error = leader.commit(&[event(&large), event(&large)]).unwrap_err();
    assert!(!error.wrote_nothing() && error.to_string().contains("does not lead"), "{error}");
    assert_eq!(folded(&journal).len(), 1);
}

/// Three servers in random turns: pauses, takeovers, orderly stops, crashes and wrong clocks.
#[test]
fn terms_never_fall_and_what_was_confirmed_stays_where_it_was() {
    for seed in 1..=8u64 {
        let journal = memory();
        let machines: Vec<Machine> = (0..3).map(|_| Machine::new(&journal)).collect();
        let mut stores: Vec<Option<Arc<JournalStore>>> =
            machines.iter().map(|one| Some(one.open())).collect();
        let mut confirmed: Vec<(Offset, String)> = Vec::new();
        let mut random = seed;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for step in 0..150 {
            let at = below(3) as usize;
            let (machine, slot) = (&machines[at], &mut stores[at]);
            let store = slot.get_or_insert_with(|| machine.open()).clone();
            match below(12) {
                0 => machine.clock.pass(below(2 * LEAD_TIMEOUT)),
                1 => machine.clock.pass_wall(below(30 * DAY)),
                2 => machine.clock.set_back(below(10 * DAY)),
                3 => drop(store.step_down()),
                4 => {
                    drop(store);
                    crash(slot.take().unwrap());
                    continue;
                }
                5 => {
                    *slot = None;
                    continue;
                }
                6..=7 => store.keep(),
                8 => drop(store.try_lead()),
                _ => {
                    let text = format!("{seed} {step}");
                    if let Ok(outcomes) = store.commit(&[event(&text)]) {
                        confirmed.push((offset_of(&outcomes), text));
                    }
                }
            }
            if store.ended().is_some() {
                *slot = None;
            }
        }
        drop(stores);
        let terms: Vec<u64> = heads(&*journal).iter().map(|head| head.term).collect();
        assert!(terms.is_sorted(), "seed {seed}: {terms:?}");
        assert!(terms.windows(2).all(|pair| pair[1] - pair[0] <= 1), "seed {seed}: {terms:?}");
        let stored = folded(&journal);
        assert_eq!(stored.len(), confirmed.len(), "seed {seed}");
        for (offset, text) in confirmed {
            assert_eq!(stored[offset.0 as usize - 1], text, "seed {seed}");
        }
    }
}

#[test]
fn an_answer_that_was_on_its_way_for_long_does_not_prove_the_lead() {
    let (_journal, one, other) = two();
    let leader = one.lead();
    let follower = other.open();
    let doubts = |store: &JournalStore| store.status().lead_doubt(LEAD_TIMEOUT).is_some();
    assert!(!doubts(&leader) && doubts(&follower));
    // The record is placed at once. Its answer arrives when another server has taken the lead.
    let (clock, rival, rivals_clock) = (one.clock.clone(), follower.clone(), other.clock.clone());
    let mut is_late = true;
    one.wire.on(move |call, moment| {
        if is_place(call) && moment == Moment::After && std::mem::take(&mut is_late) {
            rival.follow().unwrap();
            rivals_clock.pass(LEAD_TIMEOUT);
            assert!(rival.try_lead().unwrap());
            clock.pass(LEAD_TIMEOUT);
        }
        None
    });
    publish(&leader, "placed in time").unwrap();
    assert_eq!(leader.status().role, Role::Leader, "it has not heard of the other one");
    assert!(doubts(&leader) && !doubts(&follower));
    assert!(is_deposed(publish(&leader, "too late")));
    assert!(doubts(&leader));
    assert_eq!(texts(&follower), ["placed in time"]);
}
