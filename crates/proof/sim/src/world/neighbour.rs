//! The neighbour: another process on the same store that appends events and makes topics, and what the server's writer
//! finds out about it between its own commits.

use std::sync::Arc;
use std::time::Duration;

use millrace_bus::{ForeignDelays, Input, LogBounds, StoredTopic};
use millrace_model::{
    Append, Batch, DueBy, DueEvent, Durability, EventBody, NewEvent, Op, Partition, Space, TopicConfig,
    TopicKey, TopicRow, keys,
};
use millrace_shell::{Watcher, changed_streams};
use millrace_store::{KeyRange, Pace, Store};

use super::shell::{broken, due_range};
use super::{Happening, World};
use crate::check::Violation;
use crate::fault::Fault;
use crate::payload::payload;
use crate::seen::Seen;

/// How often a neighbour moves a delayed event that is due instead of appending an event of its own.
const MOVES_PERMILLE: u64 = 300;

impl World {
    /// Appends something, in a commit of its own, at a random moment.
    pub(super) fn neighbour(&mut self) -> Result<(), Violation> {
        if self.desk.calm {
            return Ok(());
        }
        let at_ms = self.clock.world_ms + self.dice.between(5, 400);
        self.schedule.at(at_ms, Happening::Neighbour);
        if !self.dice.chance(self.plan.rates.neighbour) {
            return Ok(());
        }
        let topics: Vec<TopicKey> = self.plan.topics.iter().map(|topic| topic.key.clone()).collect();
        let Some(topic) = self.dice.pick(&topics).cloned() else { return Ok(()) };
        let moves = if self.dice.chance(MOVES_PERMILLE) { self.neighbours_move() } else { None };
        let batch = match moves {
            Some(batch) => batch,
            None => self.neighbours_batch(&topic),
        };
        let outcomes = self.disk.commit(std::slice::from_ref(&batch)).map_err(|error| broken(&error))?;
        self.faults.add(Fault::Neighbour);
        self.note(&format!("= commit {} durable, of a neighbour: {topic}", self.disk.commits()));
        self.facts.begin_commit();
        self.see(&Seen::Neighbour { batch: &batch })?;
        for outcome in &outcomes {
            self.see(&Seen::Durable { batch: &batch, outcome })?;
        }
        Ok(())
    }

    /// Moves the first delayed event if its time of day has come, as a session does, perhaps while the server is moving
    /// it too. Events delayed by a duration are left alone: only the server knows when those are due.
    fn neighbours_move(&self) -> Option<Batch> {
        let now = self.clock.now().wall;
        let row = self.disk.store().scan(Space::Due, &due_range(DueBy::Wall), 1).ok()?.pop()?;
        let event = DueEvent::read(&row.key, &row.value)?;
        let is_due = keys::due_time(&row.key).is_some_and(|at| at <= now);
        let stands = self.facts.ledger.topics.contains_key(&event.topic);
        let mut ops = event.removal();
        ops.push(Op::Append(event.append()));
        let (durability, checks) = (Durability::Fsync, vec![event.waits(), event.topic_stands()]);
        (is_due && stands).then_some(Batch { nonce: 0, now, durability, checks, ops })
    }

    fn neighbours_batch(&mut self, topic: &TopicKey) -> Batch {
        let known = self.facts.ledger.topics.get(topic).map(|config| config.partitions);
        let mut ops = Vec::new();
        if known.is_none() {
            let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
            let row = TopicRow { config, incarnation: self.dice.draw(), ..TopicRow::default() };
            ops.push(Op::Put { space: Space::Topics, key: keys::topic(topic), value: row.encode() });
        }
        for _ in 0..self.dice.between(1, 3) {
            let partition = Partition(self.dice.below(u64::from(known.unwrap_or(1))) as u32);
            let body = EventBody::of(payload(self.desk.next_event()));
            let event = NewEvent { id: None, body: Arc::new(body) };
            ops.push(Op::Append(Append { stream: topic.stream(partition), event, dedupe_window_ms: 0 }));
        }
        let (nonce, now) = (self.dice.draw(), self.clock.now().wall);
        Batch { nonce, now, durability: Durability::Fsync, checks: Vec::new(), ops }
    }

    /// The writer looks for commits of others when none of its own commits waits to be reported.
    pub(super) fn look_around(&mut self) {
        let at_ms = self.clock.world_ms + self.dice.between(5, 30);
        self.schedule.at(at_ms, Happening::LookAround { life: self.life });
        let reporting = self.shell.as_ref().is_some_and(super::shell::Shell::has_unreported);
        if reporting {
            return;
        }
        if self.shell.as_ref().is_some_and(super::shell::Shell::is_idle) {
            self.finish_if_done();
        }
        let (store, Some(watcher)) = (self.disk.store(), &mut self.watcher) else { return };
        let poll = watcher.poll(store, |changes| {
            let delayed = changes.delayed.then(|| delayed(store)).flatten();
            let bounds =
                changed_streams(store, changes, |stream, start, next| LogBounds { stream, start, next })?;
            Ok((bounds, delayed))
        });
        // A poll that failed, because reads fail in this world, is repeated by the next one.
        let Some((bounds, delayed)) = poll.ok().and_then(|poll| poll.news) else { return };
        if !bounds.is_empty() || delayed.is_some() {
            self.tell(Input::ForeignCommits { bounds, delayed });
        }
    }

    /// Sets the commit from which on a server that starts now has to look.
    pub(super) fn watch_from_here(&mut self) {
        let pace = Pace::new(Duration::ZERO, Duration::ZERO);
        self.watcher = Watcher::new(self.disk.store(), pace, Arc::new(|| ())).ok();
    }
}

fn delayed(store: &dyn Store) -> Option<ForeignDelays> {
    let mut delayed = ForeignDelays::default();
    for by in DueBy::ALL {
        let found = store.scan_keys(Space::Due, &due_range(by), 1).ok()?;
        delayed.first_due.extend(found.first().and_then(|key| Some((by, keys::due_time(key)?))));
    }
    Some(delayed)
}

pub(super) fn stored_topic(store: &dyn Store, topic: &TopicKey) -> Option<Option<StoredTopic>> {
    let key = keys::topic(topic);
    let range = KeyRange { to: Some(format!("{key}\0")), from: key };
    let Some(row) = store.scan(Space::Topics, &range, 1).ok()?.pop() else { return Some(None) };
    let streams = store.streams().ok()?.into_iter().filter(|bounds| bounds.stream.topic == *topic);
    let bounds = streams.map(|at| LogBounds { stream: at.stream, start: at.start, next: at.next }).collect();
    Some(Some(StoredTopic { row: row.value, bounds }))
}
