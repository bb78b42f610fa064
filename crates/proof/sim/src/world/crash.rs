//! The end of the server, whatever its cause, and its next start from what the disk kept.

use millrace_bus::{Bus, DueBy, Snapshot};
use millrace_model::{Offset, Space, keys};
use millrace_store::{KeyRange, Store};

use super::sabotage::Saboteur;
use super::shell::{Shell, broken, due_range, rows};
use super::{Happening, World};
use crate::check::Violation;
use crate::clock::Reader;
use crate::disk::Ending;
use crate::fault::Fault;
use crate::seen::Seen;

impl World {
    pub(super) fn end(&mut self, ending: Ending) -> Result<(), Violation> {
        // A commit in progress became durable as a whole, or vanished as a whole.
        let torn = self.shell.as_ref().is_some_and(|shell| shell.under_way.is_some());
        if torn && self.dice.chance(500) {
            self.commit_applies()?;
        }
        self.shell = None;
        self.life += 1;
        let before = self.disk.commits();
        let kept = self.disk.end(ending, &mut self.dice).map_err(|error| broken(&error))?;
        self.note(&format!("! {ending:?}, {} commits lost", before - kept));
        (kept..before).for_each(|_| self.faults.add(Fault::LostCommit));
        self.faults.add(match ending {
            Ending::Stop => Fault::Stop,
            Ending::Kill => Fault::Kill,
            Ending::PowerLoss => Fault::PowerLoss,
        });
        self.facts.keep_commits(kept);
        self.see(&Seen::Ended { ending })?;
        self.drop_everyone();
        let pause_ms = self.dice.between(1, 300);
        self.schedule.at(self.clock.world_ms + pause_ms, Happening::Start);
        Ok(())
    }

    pub(super) fn start(&mut self) -> Result<(), Violation> {
        self.clock.epoch_ms = self.clock.world_ms;
        let mut reader = Reader::new(self.plan.clock_settle_ms());
        let now = reader.read(self.clock.shown());
        self.facts.tick(self.clock.world_ms, self.clock.now());
        self.facts.begin_life(self.clock.is_far_off());
        let World { checkers, facts, disk, .. } = self;
        checkers.see(facts, &Seen::Opened { store: disk.store() })?;
        self.watch_from_here();
        let unreadable = |detail: String| Violation { invariant: "restores", detail };
        let snapshot = snapshot(self.disk.store(), self.dice.draw())
            .ok_or_else(|| unreadable("the store cannot be read".to_owned()))?;
        let limits = Saboteur::limits(self.plan.sabotage, &self.plan.limits);
        let bus = Bus::restore(limits, snapshot, now);
        let bus = bus.map_err(|error| unreadable(error.to_string()))?;
        self.note(&format!("! start, life {}", self.life));
        self.see(&Seen::Started)?;
        self.shell = Some(Shell::new(bus, reader, Saboteur::new(self.plan.sabotage)));
        self.desk.up = true;
        self.schedule.at(self.clock.world_ms + 1, Happening::LookAround { life: self.life });
        self.turn_by(self.clock.world_ms);
        Ok(())
    }
}

fn snapshot(store: &dyn Store, seed: u64) -> Option<Snapshot> {
    let all = |space| rows(store, space, &KeyRange::all(), usize::MAX);
    let mut first_due = Vec::new();
    for by in [DueBy::Wall, DueBy::Elapsed] {
        let found = rows(store, Space::Due, &due_range(by), 1)?;
        first_due.extend(found.first().and_then(|(key, _)| Some((by, keys::due_time(key)?))));
    }
    let elapsed = KeyRange { from: keys::ELAPSED.to_owned(), to: Some(format!("{}\0", keys::ELAPSED)) };
    let ages = KeyRange { from: keys::AGES.to_owned(), to: Some(format!("{}\0", keys::AGES)) };
    let streams = store.streams().ok()?;
    Some(Snapshot {
        topics: all(Space::Topics)?,
        groups: all(Space::Groups)?,
        cursors: all(Space::Cursors)?,
        tries: all(Space::Attempts)?,
        seed,
        first_due,
        elapsed: rows(store, Space::Kv, &elapsed, 1)?.pop().map(|(_, value)| value),
        // Every start of the simulated server is also a start of the machine: only the wall clock says how long it was
        // away.
        boot: None,
        ages: rows(store, Space::Kv, &ages, 1)?.pop().map(|(_, value)| value),
        newest: streams
            .iter()
            .filter(|bounds| bounds.next > Offset::FIRST && !bounds.stream.topic.is_system())
            .map(|bounds| bounds.last_ts)
            .max(),
        streams: streams.into_iter().map(|bounds| (bounds.stream, bounds.start, bounds.next)).collect(),
    })
}
