//! An engine that failed over and lost its newest records: every kind of handle notices, the old copy is kept, the events
//! that were lost are listed, and the server goes on with what the engine has.

#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;

use harness::clock::MINUTE;
use harness::machine::{
    LEAD_TIMEOUT, Machine, dump, event, event_id, folded, heads, is_poisoned_by, memory, publish, texts,
};
use harness::wire::{Moment, Wire, unknown};
use millrace_conformance::journal::JournalCall;
use millrace_journal::{Journal, MemoryJournal};
use millrace_store::{Store, StoreError};
use millrace_store_journal::{JournalStore, OpenError};

fn is_place(call: JournalCall) -> bool {
    matches!(call, JournalCall::Place { .. })
}

/// A leader with ten events, of which the engine has lost the last `lost`, and a server that has never seen those.
struct FailedOver {
    journal: Arc<MemoryJournal>,
    machine: Machine,
    leader: Arc<JournalStore>,
    next: Next,
    kept: usize,
}

/// The server that goes on with what the engine has.
struct Next {
    machine: Machine,
    store: Arc<JournalStore>,
}

impl FailedOver {
    fn new(lost: usize, wire: fn(Arc<MemoryJournal>) -> Wire) -> FailedOver {
        let journal = memory();
        let wired = || Machine::wired(wire(journal.clone()));
        let (machine, other) = (wired(), wired());
        let leader = machine.lead();
        let kept = 10 - lost;
        for n in 0..kept {
            publish(&leader, &format!("kept {n}")).unwrap();
        }
        let next = Next { store: other.open(), machine: other };
        for n in 0..lost {
            leader.commit(&[event_id(&format!("lost-{n}"))]).unwrap();
        }
        journal.lose_from(leader.status().position.n - lost as u64 + 1);
        FailedOver { journal, machine, leader, next, kept }
    }
}

/// Checks what must be true after a handle of `machine` has noticed and was closed.
fn check_rebuilt(machine: &Machine, next: &Next, kept: usize, lost: usize) {
    assert!(machine.is_condemned_as("diverged"));
    let again = machine.open();
    assert_eq!(dump(&again), dump(&next.store_followed()));
    assert_eq!(machine.aside("diverged").len(), 1, "the old copy is kept");
    let [list] = &machine.aside("lost-")[..] else { panic!("{:?}", machine.aside("lost-")) };
    let list = std::fs::read_to_string(machine.folder.path().join(list)).unwrap();
    assert_eq!(list.lines().count(), lost, "{list}");
    for n in 0..lost {
        let offset = kept + n + 1;
        let line = list.lines().find(|line| line.contains(&format!("\"lost-{n}\""))).unwrap();
        assert!(line.contains(&format!("\"offset\":{offset}")) && line.contains("\"partition\":0"), "{line}");
    }
    assert_eq!(again.status().lost_events, lost as u64);
    drop(again);
    // Another start is an ordinary one.
    drop(machine.open());
    assert_eq!(machine.aside("diverged").len(), 1);
}

impl Next {
    /// Leads, and places so many records in all. The first one takes the lead.
    fn go_on(&self, records: usize) {
        self.machine.clock.pass(LEAD_TIMEOUT);
        assert!(self.store.try_lead().unwrap());
        for n in 1..records {
            publish(&self.store, &format!("other {n}")).unwrap();
        }
    }

    fn store_followed(&self) -> Arc<JournalStore> {
        self.store.follow().unwrap();
        self.store.clone()
    }
}

const WIRES: [fn(Arc<MemoryJournal>) -> Wire; 2] =
    [|journal| Wire::new(journal), |journal| Wire::guarding_head(journal)];

fn is_diverged(error: &StoreError) -> bool {
    is_poisoned_by(error, "diverged") && is_poisoned_by(error, "the engine has lost records")
}

#[test]
fn a_leader_notices_when_others_have_gone_on_further() {
    for wire in WIRES {
        let FailedOver { journal, machine, leader, next, kept } = FailedOver::new(3, wire);
        next.go_on(6);
        let before = heads(&*journal);
        let error = publish(&leader, "on lost ground").unwrap_err();
        assert!(is_diverged(&error) && !error.wrote_nothing(), "{error}");
        assert_eq!(heads(&*journal), before, "nothing was written");
        assert_eq!(leader.status().lost_records, 1);
        drop(leader);
        check_rebuilt(&machine, &next, kept, 3);
    }
}

/// Others stand exactly where the leader stands, or behind it: its next number is free.
#[test]
fn a_leader_in_the_middle_of_a_commit_notices_after_the_engine_was_away() {
    for others in [0, 2, 3] {
        let FailedOver { journal, machine, leader, next, kept } = FailedOver::new(3, WIRES[0]);
        // The engine comes back without these records; the request was lost.
        let mut is_away = true;
        machine.wire.on(move |call, moment| {
            let is_lost = is_away && is_place(call) && moment == Moment::Before;
            is_away &= !is_lost;
            is_lost.then(|| unknown("failing over"))
        });
        if others > 0 {
            next.go_on(others);
        }
        let before = heads(&*journal);
        let error = publish(&leader, "on lost ground").unwrap_err();
        assert!(is_diverged(&error), "{others}: {error}");
        assert_eq!(heads(&*journal), before, "{others}: nothing was placed behind lost records");
        drop(leader);
        machine.wire.mend();
        check_rebuilt(&machine, &next, kept, 3);
    }
}

/// The request that was lost while the engine failed over is not the commit itself.
#[test]
fn a_leader_notices_at_the_first_commit_after_the_engine_was_away() {
    let FailedOver { journal, machine, leader, next, kept } = FailedOver::new(3, WIRES[0]);
    next.go_on(3);
    let before = heads(&*journal);
    let mut is_away = true;
    machine.wire.on(move |call, moment| {
        let is_lost = is_away && matches!(call, JournalCall::Read { .. }) && moment == Moment::Before;
        is_away &= !is_lost;
        is_lost.then(|| unknown("failing over"))
    });
    // Places nothing, and only looks whether the next number is free.
    leader.commit(&[event_id("lost-0")]).unwrap();
    let error = publish(&leader, "on lost ground").unwrap_err();
    assert!(is_diverged(&error), "{error}");
    assert_eq!(heads(&*journal), before);
    drop(leader);
    machine.wire.mend();
    check_rebuilt(&machine, &next, kept, 3);
}

#[test]
fn an_engine_that_guards_its_head_is_noticed_at_the_next_commit() {
    for others in [0, 2, 3] {
        let FailedOver { journal, machine, leader, next, kept } = FailedOver::new(3, WIRES[1]);
        if others > 0 {
            next.go_on(others);
        }
        let before = heads(&*journal);
        let error = publish(&leader, "on lost ground").unwrap_err();
        assert!(is_diverged(&error), "{others}: {error}");
        assert_eq!(heads(&*journal), before);
        drop(leader);
        check_rebuilt(&machine, &next, kept, 3);
    }
}

/// The engine failed over without anybody noticing: a handle compares at every look at the manifest.
#[test]
fn an_idle_leader_notices_within_a_minute() {
    for (wire, others) in [(WIRES[0], 0), (WIRES[0], 3), (WIRES[1], 0), (WIRES[1], 3)] {
        let FailedOver { machine, leader, next, kept, .. } = FailedOver::new(3, wire);
        leader.keep();
        if others > 0 {
            next.go_on(others);
        }
        machine.clock.pass_mono(MINUTE);
        leader.keep();
        let error = leader.ended().unwrap();
        assert!(is_diverged(&error), "{error}");
        drop(leader);
        check_rebuilt(&machine, &next, kept, 3);
    }
}

#[test]
fn a_follower_notices_when_it_follows_keeps_or_takes_the_lead() {
    type Act = fn(&Machine, &JournalStore) -> Option<StoreError>;
    let acts: [(usize, Act); 4] = [
        // Another record stands behind the follower's position.
        (6, |_, store| store.follow().err()),
        // The journal ends where the follower stands, with another record.
        (3, |machine, store| {
            machine.clock.pass(MINUTE);
            store.keep();
            store.ended()
        }),
        (3, |machine, store| {
            machine.clock.pass(LEAD_TIMEOUT);
            store.try_lead().err()
        }),
        // Nobody has gone on yet.
        (0, |machine, store| {
            machine.clock.pass(LEAD_TIMEOUT);
            store.try_lead().err()
        }),
    ];
    for (at, (others, act)) in acts.into_iter().enumerate() {
        let journal = memory();
        let (leader_machine, machine, other) =
            (Machine::new(&journal), Machine::new(&journal), Machine::new(&journal));
        let leader = leader_machine.lead();
        for n in 0..7 {
            publish(&leader, &format!("kept {n}")).unwrap();
        }
        let next = Next { store: other.open(), machine: other };
        for n in 0..3 {
            leader.commit(&[event_id(&format!("lost-{n}"))]).unwrap();
        }
        let follower = machine.open();
        let records = leader.status().position.n;
        leader_machine.wire.cut();
        journal.lose_from(records - 2);
        if others > 0 {
            next.go_on(others);
        }
        let error = act(&machine, &follower).unwrap_or_else(|| panic!("act {at} did not notice"));
        assert!(is_diverged(&error), "act {at}: {error}");
        drop(follower);
        leader.close();
        check_rebuilt(&machine, &next, 7, 3);
    }
}

#[test]
fn a_copy_notices_when_it_is_opened_again() {
    for others in [0, 2, 3, 6] {
        let FailedOver { journal, machine, leader, next, kept } = FailedOver::new(3, WIRES[0]);
        leader.close();
        drop(leader);
        if others > 0 {
            next.go_on(others);
        }
        let again = machine.open();
        assert_eq!(dump(&again), dump(&next.store_followed()));
        assert_eq!(again.status().lost_events, 3);
        assert_eq!((machine.aside("diverged").len(), machine.aside("lost-").len()), (1, 1));
        assert_eq!(folded(&journal).len(), kept + others.saturating_sub(1));
    }
}

/// The engine was set back to the state of a backup, and this server is the only one.
#[test]
fn a_server_alone_goes_on_with_an_engine_that_was_set_back() {
    let FailedOver { journal, machine, leader, kept, .. } = FailedOver::new(5, WIRES[1]);
    assert!(is_diverged(&publish(&leader, "no").unwrap_err()));
    drop(leader);
    let again = machine.open();
    machine.clock.pass(LEAD_TIMEOUT);
    assert!(again.try_lead().unwrap());
    assert_eq!(publish(&again, "new").unwrap().0, kept as u64 + 1, "the offset is given again");
    assert_eq!(folded(&journal).len(), kept + 1);
}

#[test]
fn more_than_a_thousand_lost_events_are_counted_and_not_all_listed() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    publish(&leader, "kept").unwrap();
    let n = leader.status().position.n;
    for round in 0..15 {
        let batches: Vec<_> = (0..100).map(|n| event(&format!("{round} {n}"))).collect();
        leader.commit(&batches).unwrap();
    }
    journal.lose_from(n + 1);
    leader.close();
    drop(leader);
    let again = machine.open();
    assert_eq!((texts(&again), again.status().lost_events), (vec!["kept".to_owned()], 1_500));
    let list = std::fs::read_to_string(machine.folder.path().join(&machine.aside("lost-")[0])).unwrap();
    assert_eq!(list.lines().count(), 1_000);
    assert!(list.lines().next().unwrap().contains("\"offset\":1501"), "the newest come first");
}

#[test]
fn copies_that_diverged_are_kept_but_not_without_end() {
    let journal = memory();
    let machine = Machine::new(&journal);
    for round in 0..6 {
        let store = machine.open();
        machine.clock.pass(LEAD_TIMEOUT);
        assert!(store.try_lead().unwrap());
        publish(&store, &format!("{round}")).unwrap();
        journal.lose_from(store.status().position.n);
        store.close();
    }
    machine.open();
    assert_eq!(machine.aside("diverged").len(), 3);
    assert_eq!(machine.aside("lost-").len(), 6, "the lists stay");
}

/// An engine that lost records in the middle: no copy can be made of it, and no number of attempts helps.
#[test]
fn a_journal_with_a_gap_is_refused_and_no_copies_pile_up() {
    let journal = memory();
    let leader_machine = Machine::new(&journal);
    let leader = leader_machine.lead();
    for n in 0..5 {
        publish(&leader, &n.to_string()).unwrap();
    }
    let follower_machine = Machine::new(&journal);
    drop(follower_machine.open());
    for n in 5..10 {
        publish(&leader, &n.to_string()).unwrap();
    }
    let limit = millrace_journal::JournalReadLimit { records_max: 100, bytes_max: usize::MAX };
    let behind = journal.read(9, limit).unwrap();
    journal.lose_from(8);
    for (n, record) in &behind {
        let placing = millrace_journal::Placing {
            n: *n,
            prev: millrace_journal::Tip::START,
            tip: millrace_journal::Tip::START,
            record,
            settles: &[],
        };
        journal.place(&placing).unwrap();
    }
    for machine in [&follower_machine, &Machine::new(&journal)] {
        for _ in 0..3 {
            let refused = machine.try_open().unwrap_err();
            assert!(matches!(refused, OpenError::Store(StoreError::Unusable(_))), "{refused:?}");
            let text = refused.to_string();
            assert!(text.contains("records 8 to 8 are missing in the journal"), "{text}");
            assert!(text.contains("Restore the engine's data"), "{text}");
        }
        assert_eq!(machine.aside(""), [""; 0], "nothing is set aside");
    }
}

/// Two histories in one journal, as after two engines that both believed to be the primary.
#[test]
fn a_journal_whose_chain_is_broken_is_refused() {
    let journal = memory();
    let (one, two) = (memory(), Machine::new(&journal));
    let leader = two.lead();
    for n in 0..5 {
        publish(&leader, &n.to_string()).unwrap();
    }
    drop(leader);
    let foreign = Machine::new(&one);
    let other = foreign.lead();
    for n in 0..20 {
        publish(&other, &n.to_string()).unwrap();
    }
    let next = heads(&*journal).last().unwrap().n + 1;
    let limit = millrace_journal::JournalReadLimit { records_max: 3, bytes_max: usize::MAX };
    for (n, record) in one.read(next, limit).unwrap() {
        let tip = millrace_journal::Tip::START;
        journal
            .place(&millrace_journal::Placing { n, prev: tip, tip, record: &record, settles: &[] })
            .unwrap();
    }
    for machine in [&two, &Machine::new(&journal)] {
        for _ in 0..2 {
            let text = machine.try_open().unwrap_err().to_string();
            assert!(text.contains("the journal is broken there"), "{text}");
        }
        assert_eq!(machine.aside(""), [""; 0], "nothing is set aside");
    }
}
