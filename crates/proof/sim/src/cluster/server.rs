//! The servers: processes that open the store, follow or lead, and start over when their handle has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use millrace_model::Space;
use millrace_store::{KeyRange, Store, StoreError};
use millrace_store_journal::JournalStore;

use super::clock::{MachineClock, ProcessClock};
use super::copies::{Disk, MachineCopies};
use super::hub::{Hub, State};
use super::plan::Plan;
use super::sabotage::{self, Sabotage};
use super::truth::violation;
use super::wire::{Cut, Wire};
use super::{Happening, Writer};
use crate::dice::Dice;
use crate::fault::Fault;

/// The rows of positions that the servers of this world write.
pub(super) const CURSORS: &str = "sim/";

/// A server that is busy is asked again after this time.
const BUSY_MS: u64 = 700;

pub(super) struct Server {
    /// Rises when a process ends.
    pub(super) life: u64,
    /// The process is opening the store, or closing it.
    pub(super) is_moving: bool,
    pub(super) handle: Option<Arc<JournalStore>>,
    /// A call is under way that holds the turn of the handle: another one would wait for it for ever.
    pub(super) is_in_turn: bool,
    /// A round of the keeper is under way.
    pub(super) is_keeping: bool,
    pub(super) stopped_until_ms: u64,
    /// The engine has failed over: connections to it are broken.
    pub(super) is_reset: bool,
    /// How the engine cannot be reached, and until when.
    pub(super) cut: Option<(Cut, u64)>,
    pub(super) clock: Arc<MachineClock>,
    /// The state that a leader has in memory, as the bus engine has it: loaded once, when the lead was taken.
    pub(super) bus: Option<LeaderMemory>,
    pub(super) disk: Disk,
    pub(super) wire_dice: Dice,
    /// Why the store could not be opened the last time.
    pub(super) last_failure: Option<String>,
}

/// Positions of groups. The leader relies on being alone: it never reads them again.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderMemory {
    pub(super) cursors: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Holds the turn from its beginning to its end.
    Turn,
    /// A round of the keeper, which holds the turn in its first part.
    Keep,
}

pub(super) enum Entry {
    Go(Arc<JournalStore>),
    /// The server is busy or stopped: try again at this time.
    Later(u64),
    Gone,
}

impl Server {
    pub(super) fn new(clock: Arc<MachineClock>, wire_dice: Dice) -> Server {
        Server {
            life: 1,
            is_moving: false,
            handle: None,
            is_in_turn: false,
            is_keeping: false,
            stopped_until_ms: 0,
            is_reset: false,
            cut: None,
            clock,
            bus: None,
            disk: Disk::default(),
            wire_dice,
            last_failure: None,
        }
    }
}

pub(super) fn draw_clock(plan: &Plan, dice: &mut Dice, world_ms: &Arc<AtomicU64>) -> Arc<MachineClock> {
    let drift_ppm = dice.between(0, 40_000) as i64 - 20_000;
    let uptime_ms = dice.between(0, 1_000_000_000);
    let shift_ms = draw_shift(dice, plan.skew_ms_max);
    Arc::new(MachineClock::new(world_ms.clone(), uptime_ms, drift_ppm, shift_ms))
}

pub(super) fn draw_shift(dice: &mut Dice, skew_ms_max: u64) -> i64 {
    dice.between(0, 2 * skew_ms_max) as i64 - skew_ms_max as i64
}

impl Hub {
    /// Begins a call of a handle. Must be followed by [`Hub::finish`].
    pub(super) fn begin(&self, writer: Writer, operation: Operation) -> Entry {
        let mut state = self.lock();
        let now_ms = state.now_ms();
        if !state.is_alive(writer) {
            return Entry::Gone;
        }
        let server = &mut state.servers[writer.server];
        let Some(handle) = server.handle.clone() else { return Entry::Gone };
        if server.stopped_until_ms > now_ms {
            return Entry::Later(server.stopped_until_ms);
        }
        if server.is_in_turn || operation == Operation::Keep && server.is_keeping {
            return Entry::Later(now_ms + BUSY_MS);
        }
        server.is_in_turn = true;
        server.is_keeping |= operation == Operation::Keep;
        Entry::Go(handle)
    }

    /// Ends a call of a handle. Returns whether the process still runs; a handle that has ended starts over.
    pub(super) fn finish(&self, writer: Writer, operation: Operation, handle: Arc<JournalStore>) -> bool {
        let mut state = self.lock();
        if !state.is_alive(writer) {
            return false;
        }
        let server = &mut state.servers[writer.server];
        server.is_in_turn = false;
        server.is_keeping &= operation != Operation::Keep;
        let is_given_up = server.disk.condemned.is_some() || server.disk.has_failed;
        drop(state);
        let ended = handle.ended();
        drop(handle);
        let Some(error) = ended else { return true };
        let mut state = self.lock();
        state.note(&format!("the handle of {writer} has ended: {}", kind_of(&error)));
        state.faults.add(Fault::StoreEnded);
        match &error {
            StoreError::Deposed(_) | StoreError::Closed(_) => {}
            StoreError::Poisoned(_) if is_given_up => {}
            _ => {
                state.fail(violation("no_false_alarm", format!("the handle of {writer} has ended: {error}")));
            }
        }
        let is_ignored =
            state.sabotage == Some(Sabotage::IgnoreDeposed) && matches!(error, StoreError::Deposed(_));
        let server = &mut state.servers[writer.server];
        if is_ignored {
            let memory = server.bus.take();
            state.end_process(writer.server, 10);
            state.servers[writer.server].bus = memory;
            return false;
        }
        // Dropping the handle gives the lead back, if only the copy is lost. Not while its keeper is under way.
        let handle = server.handle.take_if(|_| !server.is_keeping);
        server.is_moving = handle.is_some();
        drop(state);
        drop(handle);
        let mut state = self.lock();
        if state.is_alive(writer) {
            let pause_ms = state.dice.between(10, 1_500);
            state.end_process(writer.server, pause_ms);
        }
        false
    }

    pub(super) fn start(self: &Arc<Hub>, at: usize) {
        let (writer, settings, clock, tells_time) = {
            let mut state = self.lock();
            let now_ms = state.now_ms();
            let server = &mut state.servers[at];
            if server.handle.is_some() || server.is_moving {
                return;
            }
            if server.stopped_until_ms > now_ms {
                let at_ms = server.stopped_until_ms;
                state.schedule.at(at_ms, Happening::Start { server: at });
                return;
            }
            server.is_moving = true;
            let writer = Writer { server: at, life: server.life };
            let clock = server.clock.clone();
            let settings =
                sabotage::settings(state.sabotage, &state.plan, at, state.servers[at].bus.is_some());
            state.note(&format!("{writer} opens"));
            (writer, settings, clock, state.plan.tells_time)
        };
        let Writer { server, life } = writer;
        let hub = self.clone();
        let journal = Arc::new(Wire::new(hub.clone(), writer, tells_time));
        let copies = Arc::new(MachineCopies { hub: hub.clone(), writer });
        let clock = Arc::new(ProcessClock { hub, clock, server, life });
        let opened = JournalStore::open_quiet(journal, copies, settings, clock);
        let mut state = self.lock();
        if !state.is_alive(writer) {
            drop(state);
            // The process was killed meanwhile: nothing of it may act.
            if let Ok(handle) = opened {
                handle.close();
            }
            return;
        }
        state.servers[at].is_moving = false;
        match opened {
            Ok(handle) => {
                let n = handle.status().position.n;
                state.note(&format!("{writer} is open at {n}"));
                state.servers[at].handle = Some(Arc::new(handle));
                let now_ms = state.now_ms();
                let (keep_ms, supervise_ms) = (state.plan.keep_ms, state.plan.supervise_ms);
                let keep_ms = now_ms + state.dice.between(0, keep_ms);
                let supervise_ms = now_ms + state.dice.between(0, supervise_ms);
                state.schedule.at(keep_ms, Happening::Keep { server: at, life });
                state.schedule.at(supervise_ms, Happening::Supervise { server: at, life });
            }
            Err(error) => {
                state.note(&format!("{writer} cannot open"));
                state.servers[at].last_failure = Some(error.to_string());
                state.faults.add(Fault::OpenFailed);
                let pause_ms = state.dice.between(100, 2_000);
                state.end_process(at, pause_ms);
            }
        }
    }

    pub(super) fn keep(self: &Arc<Hub>, writer: Writer) {
        let Writer { server, life } = writer;
        let again = Happening::Keep { server, life };
        match self.begin(writer, Operation::Keep) {
            Entry::Gone => {}
            Entry::Later(at_ms) => self.lock().schedule.at(at_ms, again),
            Entry::Go(handle) => {
                handle.keep();
                if !self.finish(writer, Operation::Keep, handle) {
                    return;
                }
                let mut state = self.lock();
                // Now and then the operating system writes the file back.
                if state.dice.chance(300) {
                    state.servers[server].disk.sync();
                }
                let keep_ms = state.plan.keep_ms;
                let at_ms = state.now_ms() + state.dice.between(keep_ms / 2, keep_ms + keep_ms / 2);
                state.schedule.at(at_ms, again);
            }
        }
    }

    pub(super) fn supervise(self: &Arc<Hub>, writer: Writer) {
        let Writer { server, life } = writer;
        let again = Happening::Supervise { server, life };
        match self.begin(writer, Operation::Turn) {
            Entry::Gone => {}
            Entry::Later(at_ms) => self.lock().schedule.at(at_ms, again),
            Entry::Go(handle) => {
                let did_lead = handle.leads();
                let (may_lead, only_if_free) = {
                    let mut state = self.lock();
                    (sabotage::may_lead(&state), state.dice.chance(200))
                };
                let leads = did_lead
                    || may_lead
                        && match only_if_free {
                            true => handle.claim_serving().is_ok(),
                            false => handle.try_lead() == Ok(true),
                        };
                if leads && !did_lead {
                    self.lead(writer, &handle);
                }
                if !self.finish(writer, Operation::Turn, handle) {
                    return;
                }
                let mut state = self.lock();
                let supervise_ms = state.plan.supervise_ms;
                let at_ms = state.now_ms() + state.dice.between(supervise_ms / 2, supervise_ms);
                state.schedule.at(at_ms, again);
            }
        }
    }

    /// A leader loads what the bus engine would load.
    fn lead(&self, writer: Writer, handle: &JournalStore) {
        let rows = handle.scan(Space::Cursors, &KeyRange::prefix(CURSORS), usize::MAX).unwrap_or_default();
        let cursors = rows.into_iter().filter_map(|row| {
            let position = std::str::from_utf8(&row.value).ok()?.parse().ok()?;
            Some((row.key, position))
        });
        let memory = LeaderMemory { cursors: cursors.collect() };
        let term = handle.status().term;
        let mut state = self.lock();
        if !state.is_alive(writer) {
            return;
        }
        state.note(&format!("{writer} leads, term {term}"));
        state.faults.add(Fault::LeadTaken);
        state.servers[writer.server].bus = Some(memory);
    }

    /// Dropping the handle gives the lead back.
    pub(super) fn stop(self: &Arc<Hub>, writer: Writer) {
        {
            let mut state = self.lock();
            let now_ms = state.now_ms();
            if !state.is_alive(writer) {
                return;
            }
            let server = &mut state.servers[writer.server];
            if server.is_in_turn || server.is_keeping || server.stopped_until_ms > now_ms {
                let Writer { server, life } = writer;
                state.schedule.at(now_ms + 50, Happening::Stop { server, life });
                return;
            }
            let Some(handle) = server.handle.take() else { return };
            server.is_moving = true;
            state.note(&format!("{writer} stops"));
            drop(state);
            drop(handle);
        }
        let mut state = self.lock();
        if state.is_alive(writer) {
            state.note(&format!("{writer} has stopped"));
            let pause_ms = state.dice.between(100, 10_000);
            state.end_process(writer.server, pause_ms);
        }
    }

    /// Ends all processes, so that nothing holds the hub any more.
    pub(super) fn close_all(&self) {
        let handles: Vec<Arc<JournalStore>> = {
            let mut state = self.lock();
            state.servers.iter_mut().filter_map(|server| server.handle.take()).collect()
        };
        for handle in handles {
            handle.close();
        }
        let buried = std::mem::take(&mut self.lock().buried);
        drop(buried);
    }
}

impl State {
    /// The process has ended, however: another one starts in its place.
    pub(super) fn end_process(&mut self, at: usize, restart_ms: u64) {
        let at_ms = self.now_ms() + restart_ms;
        let server = &mut self.servers[at];
        server.life += 1;
        server.is_moving = false;
        server.is_in_turn = false;
        server.is_keeping = false;
        server.bus = None;
        if let Some(handle) = server.handle.take() {
            handle.close();
            // Dropped when the lock is free: a handle may look at its clock once more.
            self.buried.push(handle);
        }
        self.schedule.at(at_ms, Happening::Start { server: at });
    }
}

fn kind_of(error: &StoreError) -> &'static str {
    match error {
        StoreError::Deposed(_) => "deposed",
        StoreError::Closed(_) => "closed",
        StoreError::Poisoned(_) => "poisoned",
        _ => "another error",
    }
}
