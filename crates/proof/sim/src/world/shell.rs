//! The simulator's stand-in for the runtime around the engine, without threads: turns, group commit, reads.

use std::collections::VecDeque;

use millrace_bus::{Bus, DueBy, Effect, Input, ReadPage, Token};
use millrace_model::{Batch, Mono, Offset, Outcome, Space, Stream};
use millrace_store::{KeyRange, ReadLimit, Retention, Store, StoreError};

use super::neighbour::stored_topic;
use super::sabotage::Saboteur;
use super::{Happening, World};
use crate::check::Violation;
use crate::clock::Reader;
use crate::disk::{Ending, level_of};
use crate::fault::Fault;
use crate::seen::Seen;
use crate::words;

/// Inputs that one turn may take together.
const TURN_INPUTS_MAX: u64 = 6;
/// The clock is read at least this often.
const WAIT_MS_MAX: u64 = 1000;

pub(super) struct Shell {
    bus: Bus,
    saboteur: Saboteur,
    reader: Reader,
    pub(super) inbox: VecDeque<Input>,
    turn_at_ms: Option<u64>,
    queue: VecDeque<(Token, Batch)>,
    pub(super) under_way: Option<UnderWay>,
    reads: u64,
    pub(super) stopping: bool,
    /// A commit has failed: the store accepts no more.
    poisoned: bool,
}

/// The commit that is being made durable.
pub(super) struct UnderWay {
    pub(super) batches: Vec<(Token, Batch)>,
    fails: bool,
    outcomes: Option<Vec<Outcome>>,
}

impl Shell {
    pub(super) fn new(bus: Bus, reader: Reader, saboteur: Saboteur) -> Shell {
        Shell {
            bus,
            saboteur,
            reader,
            inbox: VecDeque::new(),
            turn_at_ms: None,
            queue: VecDeque::new(),
            under_way: None,
            reads: 0,
            stopping: false,
            poisoned: false,
        }
    }

    /// Whether a commit is durable that the engine has not been told of.
    pub(super) fn has_unreported(&self) -> bool {
        self.poisoned || self.under_way.as_ref().is_some_and(|commit| commit.outcomes.is_some())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.queue.is_empty() && self.under_way.is_none() && self.reads == 0
    }
}

impl World {
    /// Gives an input to the server, if one is running.
    pub(super) fn tell(&mut self, input: Input) {
        let Some(shell) = &mut self.shell else { return };
        shell.inbox.push_back(input);
        let at_ms = self.clock.world_ms + u64::from(self.dice.chance(100));
        self.turn_by(at_ms);
    }

    pub(super) fn turn_by(&mut self, at_ms: u64) {
        let Some(shell) = &mut self.shell else { return };
        if shell.turn_at_ms.is_none_or(|planned_ms| at_ms < planned_ms) {
            shell.turn_at_ms = Some(at_ms);
            self.schedule.at(at_ms, Happening::Turn { life: self.life });
        }
    }

    /// Runs one turn: some inputs, one settling, all effects.
    pub(super) fn turn(&mut self) -> Result<(), Violation> {
        let shown = self.clock.shown();
        let inputs_max = self.dice.between(1, TURN_INPUTS_MAX) as usize;
        let Some(shell) = self.shell.as_mut().filter(|shell| shell.turn_at_ms == Some(self.clock.world_ms))
        else {
            return Ok(());
        };
        shell.turn_at_ms = None;
        let now = shell.reader.read(shown);
        let inputs: Vec<Input> = shell.inbox.drain(..inputs_max.min(shell.inbox.len())).collect();
        self.facts.turn += 1;
        let nothing_in = inputs.is_empty();
        for input in inputs {
            self.note(&words::input(&input));
            self.see(&Seen::Told { input: &input })?;
            let Some(shell) = &mut self.shell else { return Ok(()) };
            for input in shell.saboteur.inputs(now, input) {
                shell.bus.handle(now, input);
            }
        }
        let Some(shell) = &mut self.shell else { return Ok(()) };
        shell.bus.settle(now);
        if !cfg!(debug_assertions) {
            // A debug build of the engine checks itself.
            shell.bus.check_invariants();
        }
        if shell.bus.never_count() > 0 {
            let detail = "the engine was in a state that cannot occur".to_owned();
            return Err(Violation { invariant: "never", detail });
        }
        let effects = shell.saboteur.effects(shell.bus.drain());
        let deadline = shell.bus.next_deadline();
        let quiet = nothing_in && effects.is_empty();
        for effect in effects {
            self.note(&words::effect(&effect));
            self.take_effect(effect)?;
        }
        self.start_commit();
        self.see(&Seen::Settled { deadline, quiet })?;
        self.settled(deadline)
    }

    fn settled(&mut self, deadline: Option<Mono>) -> Result<(), Violation> {
        let Some(shell) = &self.shell else { return Ok(()) };
        if !shell.inbox.is_empty() {
            self.turn_by(self.clock.world_ms);
        } else {
            // Time must go on even if the engine asks to be woken in the past.
            let at_ms = deadline.map_or(u64::MAX, |at| self.clock.world_at(at)).max(self.clock.world_ms + 1);
            self.turn_by(at_ms.min(self.clock.world_ms + WAIT_MS_MAX));
        }
        if self.shell.as_ref().is_some_and(Shell::is_idle) {
            self.see(&Seen::Idle)?;
            self.finish_if_done();
        }
        Ok(())
    }

    fn take_effect(&mut self, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::Commit { token, batch } => {
                self.see(&Seen::Wanted { batch: &batch })?;
                self.shell
                    .as_mut()
                    .into_iter()
                    .for_each(|shell| shell.queue.push_back((token, batch.clone())));
            }
            Effect::Read { .. }
            | Effect::Seek { .. }
            | Effect::FindStart { .. }
            | Effect::ReadTopic { .. }
            | Effect::CheckRetained { .. }
            | Effect::ScanDue { .. } => {
                self.start_read(effect);
            }
            Effect::Reply { to, reply } => {
                self.see(&Seen::Answered { to, reply: &reply })?;
                self.replied(to, &reply);
            }
            Effect::Deliver { conn, group, event, attempts } => {
                self.see(&Seen::Delivered { conn, group: &group, event: &event, attempts })?;
                self.delivered(conn, &group, &event);
            }
            Effect::Notice { conn, .. } => self.noticed(conn),
            // Notes are for logs; the checkers read the batches themselves. Nothing but the engine checks payloads
            // here.
            Effect::Note(_) | Effect::SchemaInForce { .. } => {}
            Effect::Stopped => {
                self.see(&Seen::Stopped)?;
                let at_ms = self.clock.world_ms + self.dice.below(3);
                self.schedule.at(at_ms, Happening::End { life: self.life, ending: Ending::Stop });
            }
        }
        Ok(())
    }

    /// Starts a commit with all batches that were asked for while the last commit was in progress.
    fn start_commit(&mut self) {
        let Some(shell) = self.shell.as_mut().filter(|shell| shell.under_way.is_none()) else { return };
        if shell.poisoned {
            shell.queue.clear();
        }
        if shell.queue.is_empty() {
            return;
        }
        let together = if self.dice.chance(800) { u64::MAX } else { self.dice.between(1, 4) };
        let count = shell.queue.len().min(together as usize);
        let batches = shell.queue.drain(..count).collect();
        let calm = self.desk.calm;
        let fails = !calm && self.dice.chance(self.plan.rates.commit_failed);
        let mut takes_ms = self.dice.below(8);
        if !calm && self.dice.chance(self.plan.rates.commit_slow) {
            self.faults.add(Fault::CommitSlow);
            takes_ms = self.dice.between(50, 1500);
        }
        shell.under_way = Some(UnderWay { batches, fails, outcomes: None });
        let (now_ms, life) = (self.clock.world_ms, self.life);
        // Readers see a commit before its writer has reported it.
        self.schedule
            .at(now_ms + self.dice.between(takes_ms / 2, takes_ms), Happening::CommitApplies { life });
        self.schedule.at(now_ms + takes_ms, Happening::CommitReports { life });
    }

    pub(super) fn commit_applies(&mut self) -> Result<(), Violation> {
        let Some(commit) = self.shell.as_mut().and_then(|shell| shell.under_way.as_mut()) else {
            return Ok(());
        };
        // Nobody knows whether a failed commit reached the disk, except that it is all or nothing.
        if commit.outcomes.is_some() || (commit.fails && self.dice.chance(500)) {
            return Ok(());
        }
        let batches: Vec<Batch> = commit.batches.iter().map(|(_, batch)| batch.clone()).collect();
        let outcomes = self.disk.commit(&batches).map_err(|error| broken(&error))?;
        commit.outcomes = Some(outcomes.clone());
        let level = level_of(&batches);
        self.note(&format!("= commit {} durable ({})", self.disk.commits(), level.as_str()));
        self.facts.begin_commit();
        for (batch, outcome) in batches.iter().zip(&outcomes) {
            self.see(&Seen::Durable { batch, outcome })?;
        }
        Ok(())
    }

    pub(super) fn commit_reports(&mut self) {
        let Some(commit) = self.shell.as_mut().and_then(|shell| shell.under_way.take()) else { return };
        if commit.fails {
            self.faults.add(Fault::CommitFailed);
            self.shell.as_mut().into_iter().for_each(|shell| shell.poisoned = true);
            self.tell(Input::StorageFailed { reason: "the disk is on fire".to_owned() });
            let at_ms = self.clock.world_ms + self.dice.between(2, 40);
            return self.schedule.at(at_ms, Happening::End { life: self.life, ending: Ending::Kill });
        }
        for ((token, _), outcome) in commit.batches.into_iter().zip(commit.outcomes.unwrap_or_default()) {
            self.tell(Input::Committed { token, outcome });
        }
    }

    fn start_read(&mut self, effect: Effect) {
        let takes_ms = if self.dice.chance(100) { self.dice.between(10, 300) } else { self.dice.below(4) };
        // The page may be as old as the request or as new as the answer.
        let early = self.dice.chance(500).then(|| Box::new(self.look_up(&effect)));
        self.shell.as_mut().into_iter().for_each(|shell| shell.reads += 1);
        let at_ms = self.clock.world_ms + takes_ms;
        self.schedule.at(at_ms, Happening::ReadEnds { life: self.life, effect: Box::new(effect), early });
    }

    pub(super) fn read_ends(&mut self, effect: &Effect, early: Option<Box<Input>>) {
        let input = early.map_or_else(|| self.look_up(effect), |input| *input);
        self.shell.as_mut().into_iter().for_each(|shell| shell.reads -= 1);
        self.tell(input);
    }

    fn look_up(&mut self, effect: &Effect) -> Input {
        let fails = !self.desk.calm && self.dice.chance(self.plan.rates.read_failed);
        if fails {
            self.faults.add(Fault::ReadFailed);
        }
        let store = self.disk.store();
        match effect {
            Effect::Read { token, stream, from, events_max, bytes_max } => {
                let limit = ReadLimit { events_max: *events_max, bytes_max: *bytes_max };
                let page = store.read(stream, *from, limit).ok().filter(|_| !fails);
                let page = page.map(|page| ReadPage { events: page.events, through: page.through });
                Input::Page { token: *token, page }
            }
            Effect::Seek { token, streams, ts } => {
                let offsets = streams.iter().map(|stream| store.seek(stream, *ts).ok());
                Input::Found {
                    token: *token,
                    offsets: offsets.collect::<Option<Vec<Offset>>>().filter(|_| !fails),
                }
            }
            Effect::FindStart { token, stream, older_than, bytes_max } => {
                let rule = Retention { older_than: *older_than, bytes_max: *bytes_max };
                let found = store.retention_start(stream, rule).ok().filter(|_| !fails);
                Input::Found { token: *token, offsets: found.map(|offset| vec![offset]) }
            }
            Effect::ScanDue { token, waits, rows_max } => {
                let rows = rows(store, Space::Due, &due_range(*waits), *rows_max).filter(|_| !fails);
                Input::DueRows { token: *token, rows }
            }
            Effect::ReadTopic { token, topic } => {
                let found = stored_topic(store, topic).filter(|_| !fails);
                Input::TopicRead { token: *token, found }
            }
            Effect::CheckRetained { token, check } => {
                let read = |stream: &Stream, from, events_max, bytes_max| {
                    let page = store.read(stream, from, ReadLimit { events_max, bytes_max }).ok()?;
                    Some(ReadPage { events: page.events, through: page.through })
                };
                let scan = |from: &str, rows_max| {
                    rows(store, Space::Due, &KeyRange { from: from.to_owned(), to: None }, rows_max)
                };
                Input::RetainedChecked { token: *token, outcome: check.run(read, scan).filter(|_| !fails) }
            }
            // Only the six effects above are ever looked up.
            _ => Input::StorageFailed { reason: "not a read".to_owned() },
        }
    }
}

pub(super) fn rows(
    store: &dyn Store,
    space: Space,
    range: &KeyRange,
    rows_max: usize,
) -> Option<Vec<(String, bytes::Bytes)>> {
    let rows = store.scan(space, range, rows_max).ok()?;
    Some(rows.into_iter().map(|row| (row.key, row.value)).collect())
}

pub(super) fn due_range(by: DueBy) -> KeyRange {
    let (from, to) = by.key_range();
    KeyRange { from: from.to_owned(), to: to.map(str::to_owned) }
}

pub(super) fn broken(error: &StoreError) -> Violation {
    Violation { invariant: "store_is_fold", detail: error.to_string() }
}
