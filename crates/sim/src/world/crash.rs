//! The server's end, whatever its cause, and its next beginning from what the disk kept.

use millrace_bus::{Bus, Snapshot};
use millrace_model::{Space, keys};
use millrace_store::{KeyRange, Store};

use super::shell::{Shell, broken, rows};
use super::{Happening, World};
use crate::check::Violation;
use crate::disk::Ending;
use crate::fault::Fault;
use crate::seen::Seen;

impl World {
    pub(super) fn end(&mut self, ending: Ending) -> Result<(), Violation> {
        // A commit under way became durable as a whole, or vanished as a whole.
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
        let now = self.clock.now();
        self.facts.tick(self.clock.world_ms, now);
        let World { checkers, facts, disk, .. } = self;
        checkers.see(facts, &Seen::Opened { store: disk.store() })?;
        self.watch_from_here();
        let unreadable = |detail: String| Violation { invariant: "restores", detail };
        let snapshot = snapshot(self.disk.store(), self.dice.draw())
            .ok_or_else(|| unreadable("the store cannot be read".to_owned()))?;
        let bus = Bus::restore(self.plan.limits.clone(), snapshot, now);
        let bus = bus.map_err(|error| unreadable(error.to_string()))?;
        self.note(&format!("! start, life {}", self.life));
        self.see(&Seen::Started)?;
        self.shell = Some(Shell::new(bus));
        self.desk.up = true;
        self.schedule.at(self.clock.world_ms + 1, Happening::LookAround { life: self.life });
        self.turn_by(self.clock.world_ms);
        Ok(())
    }
}

fn snapshot(store: &dyn Store, seed: u64) -> Option<Snapshot> {
    let all = |space| rows(store, space, &KeyRange::all(), usize::MAX);
    let due = rows(store, Space::Due, &KeyRange::all(), 1)?;
    let streams = store.streams().ok()?;
    Some(Snapshot {
        topics: all(Space::Topics)?,
        groups: all(Space::Groups)?,
        cursors: all(Space::Cursors)?,
        tries: all(Space::Tries)?,
        seed,
        first_due: due.first().and_then(|(key, _)| keys::due_time(key)),
        streams: streams.into_iter().map(|bounds| (bounds.stream, bounds.start, bounds.next)).collect(),
    })
}
