//! Three servers in random worlds: lost and late answers, takeovers, crashes, sleeps, wrong clocks, snapshots, trimming
//! and damaged copies, all at once. What was confirmed is there, what was refused is not, and all copies are equal.

#![allow(clippy::unwrap_used)]

mod harness;

use std::collections::BTreeSet;
use std::sync::Arc;

use harness::clock::{DAY, HOUR, MINUTE};
use harness::machine::{LEAD_TIMEOUT, Machine, dump, events, heads, memory, offset_of};
use harness::wire::Wire;
use millrace_conformance::build::{append_id, batch, equals, put};
use millrace_conformance::journal::{FaultPlan, FaultyJournal};
use millrace_journal::MemoryJournal;
use millrace_model::{Batch, Offset, Space};
use millrace_store::{Store, StoreError};
use millrace_store_journal::JournalStore;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Server {
    machine: Machine,
    store: Option<Arc<JournalStore>>,
}

impl Server {
    fn open(&mut self) -> Arc<JournalStore> {
        self.store.get_or_insert_with(|| self.machine.open()).clone()
    }

    /// Ends like a process that is killed.
    fn kill(&mut self) {
        if let Some(store) = self.store.take() {
            store.close();
        }
    }
}

/// What became of the events that were published.
#[derive(Default)]
struct Ledger {
    confirmed: Vec<(Offset, String)>,
    /// The store said that nothing was written.
    refused: BTreeSet<String>,
}

struct World {
    journal: Arc<MemoryJournal>,
    servers: Vec<Server>,
    random: Random,
    ledger: Ledger,
}

impl World {
    fn new(seed: u64) -> World {
        let journal = memory();
        let servers = (0..3)
            .map(|at| {
                let plan = FaultPlan {
                    seed: seed * 10 + at,
                    lose_request_every: 9,
                    lose_answer_every: 9,
                    repeat_every: 11,
                    late_every: 13,
                    ..FaultPlan::default()
                };
                let wire = Wire::new(Arc::new(FaultyJournal::new(journal.clone(), plan)));
                let machine = Machine::wired(wire).with(|settings| settings.snapshot_records = 40);
                Server { machine, store: None }
            })
            .collect();
        World { journal, servers, random: Random(seed), ledger: Ledger::default() }
    }

    fn step(&mut self, step: usize) {
        let (at, what) = (self.random.below(3) as usize, self.random.below(30));
        let amount = self.random.below(1_000);
        let server = &mut self.servers[at];
        let clock = server.machine.clock.clone();
        match what {
            0 => clock.pass(LEAD_TIMEOUT),
            1 => clock.pass(amount * MINUTE),
            2 => clock.pass(3 * DAY),
            3 => clock.pass_wall(amount * HOUR),
            4 => clock.set_back(amount * HOUR),
            5 => server.kill(),
            6 => server.store = None,
            7 => {
                let _ = server.open().step_down();
            }
            8 => {
                let _ = server.open().snapshot();
            }
            9 => {
                let changes = [
                    "UPDATE events SET payload = x'7b7d' WHERE seq = (SELECT max(seq) FROM events)",
                    "UPDATE events SET id = 'other' WHERE seq = (SELECT min(seq) FROM events)",
                    "UPDATE kv SET value = x'00' WHERE key = 'row'",
                    "UPDATE kv SET value = x'00' WHERE key = 'cluster/lead'",
                    "UPDATE meta SET value = x'00' WHERE key = 'journal'",
                ];
                let open = server.open();
                let conn = rusqlite::Connection::open(&server.machine.path).unwrap();
                conn.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
                conn.execute(changes[amount as usize % changes.len()], []).unwrap();
                drop(open);
            }
            10 if server.store.is_none() => {
                let _ = std::fs::remove_file(&server.machine.path);
            }
            11..=14 => server.open().keep(),
            15..=17 => {
                let _ = server.open().try_lead();
            }
            _ => {
                let store = server.open();
                self.ledger.publish(&store, step, amount);
            }
        }
        let server = &mut self.servers[at];
        if server.store.as_ref().is_some_and(|store| store.ended().is_some()) {
            server.store = None;
        }
    }

    fn check(mut self, seed: u64) {
        for server in &mut self.servers {
            server.kill();
        }
        let terms: Vec<u64> = heads(&*self.journal).iter().map(|head| head.term).collect();
        assert!(terms.is_sorted(), "seed {seed}: {terms:?}");
        let fresh = Machine::new(&self.journal).open();
        let page = fresh.read(&events(), Offset(1), harness::machine::WHOLE).unwrap();
        let stored: Vec<String> = page.events.iter().map(|event| event.id.to_string()).collect();
        for (offset, id) in &self.ledger.confirmed {
            assert_eq!(&stored[offset.0 as usize - 1], id, "seed {seed}: moved or lost");
        }
        let unique: BTreeSet<&String> = stored.iter().collect();
        assert_eq!(unique.len(), stored.len(), "seed {seed}: stored twice");
        let wrongly: Vec<_> = stored.iter().filter(|id| self.ledger.refused.contains(*id)).collect();
        assert!(wrongly.is_empty(), "seed {seed}: told that nothing was written: {wrongly:?}");
        let expected = dump(&fresh);
        for server in &mut self.servers {
            let store = server.open();
            let damaged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dump(&store)));
            let found = damaged.unwrap_or_else(|_| {
                // Damage that nobody has met yet costs a rebuild now.
                assert!(store.ended().is_some(), "seed {seed}");
                drop(store);
                server.store = None;
                dump(&server.open())
            });
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}

impl Ledger {
    /// Publishes an event and changes a row with it, or publishes one again that was confirmed.
    fn publish(&mut self, store: &JournalStore, step: usize, amount: u64) {
        if amount < 200 && !self.confirmed.is_empty() {
            let (offset, id) = &self.confirmed[amount as usize % self.confirmed.len()];
            if let Ok(outcomes) = store.commit(&[event(id)]) {
                assert_eq!(offset_of(&outcomes), *offset, "step {step}: an id was not known any more");
            }
            return;
        }
        let id = format!("event-{step}");
        let row = batch(1, vec![put(Space::Kv, "row", &id)]);
        let never =
            Batch { checks: vec![equals(Space::Kv, "row", "never")], ..event(&format!("never-{step}")) };
        match store.commit(&[event(&id), row, never]) {
            Ok(outcomes) => self.confirmed.push((offset_of(&outcomes[..1]), id)),
            Err(error) if error.wrote_nothing() => drop(self.refused.insert(id)),
            Err(StoreError::Poisoned(_) | StoreError::Closed(_)) => {}
            Err(error) => panic!("step {step}: {error}"),
        }
        self.refused.insert(format!("never-{step}"));
    }
}

fn event(id: &str) -> Batch {
    batch(1, vec![append_id(&events(), id, id, 1_000_000)])
}

#[test]
fn random_worlds_keep_every_promise() {
    let seeds = std::env::var("MILLRACE_TEST_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for seed in 1..=seeds {
        let mut world = World::new(seed);
        for step in 0..200 {
            world.step(step);
        }
        world.check(seed);
    }
}
