//! The engine's public interface: inputs go into lanes, turns route them, effects come out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{Boot, Mono, Namespaces, Now, OsFault, OsId, OsMessage, Requester};

use crate::capabilities::manifest::Manifest;
use crate::capabilities::table::{BootError, CapabilityState, CapabilityTable};
use crate::counters::{Counters, Gauges};
use crate::interface::effect::Effect;
use crate::interface::input::{CapabilityId, ConnId, DeliveryId, Input, Receipt};
use crate::interface::note::{Audience, Note};
use crate::limits::RouterLimits;
use crate::reports::messages::{self, Ids, RequestRef};
use crate::reports::trace::{Party, Realm, Trace, TraceQuery, TraceRecord, TraceStep, realm_of};
use crate::routing::drops::Drops;
use crate::routing::emit::Emission;
use crate::routing::events::{EventAuthor, WaitingEvents};
use crate::routing::lanes::{Lane, Lanes, Microtask, Task};
use crate::routing::pending::{OutcomeTo, PendingTable};
use crate::timing::builtin::{self, Builtins};
use crate::timing::deadlines::Deadlines;
use crate::timing::timers::{Timer, TimerMessage, Timers};

/// The message of the 503 error that clients get while the loop is stopping.
pub(crate) const SHUTTING_DOWN: &str = "Kernel shutting down";

/// See the crate's documentation.
#[derive(Debug)]
pub struct Router {
    pub(crate) limits: RouterLimits,
    pub(crate) ids: Ids,
    pub(crate) table: CapabilityTable,
    pub(crate) builtins: Builtins,
    pub(crate) lanes: Lanes,
    pub(crate) microtasks: VecDeque<Microtask>,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) pending: PendingTable,
    pub(crate) timeouts: Deadlines<(OsId, DeliveryId)>,
    pub(crate) timers: Timers,
    pub(crate) waiting_events: WaitingEvents,
    pub(crate) drops: Drops,
    /// Messages that were put into a mailbox and that the actor has not reported done.
    pub(crate) deliveries: BTreeMap<(CapabilityId, DeliveryId), DeliveryEntry>,
    pub(crate) next_delivery: u64,
    pub(crate) trace: Trace,
    pub(crate) counters: Counters,
    pub(crate) effects: Vec<Effect>,
    pub(crate) stop: Stop,
    /// Stands for the start of this process as the cause of notes that follow from no message: see `start` in
    /// `observe.rs`.
    pub(crate) start_id: Option<OsId>,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) by: Requester,
    /// Messages of this connection that wait for their turn or for an outcome.
    pub(crate) messages: usize,
    /// Requests of this connection that wait for their outcome.
    pub(crate) waits: BTreeMap<DeliveryId, OsId>,
    pub(crate) timers: usize,
}

#[derive(Debug)]
pub(crate) struct DeliveryEntry {
    pub(crate) id: OsId,
    pub(crate) correlation: Option<OsId>,
    /// The message is of the domain `Sys`: the loop talks about itself.
    pub(crate) is_sys: bool,
    pub(crate) receipt: Option<Receipt>,
    /// For an event that a timer sent: which timer, and to whom.
    pub(crate) timer: Option<TimerEvent>,
    /// The actor has taken the message ([`Input::Handed`]): its slot in the mailbox is free already.
    pub(crate) handed: bool,
    /// The namespaces of the client that began the undertaking this message belongs to.
    pub(crate) realm: Realm,
}

/// An event that a timer sent to one subscriber.
#[derive(Clone, Debug)]
pub(crate) struct TimerEvent {
    pub(crate) timer: u64,
    pub(crate) which: TimerMessage,
    /// The subscriber's name. The subscriber itself may be gone when it gives the event back.
    pub(crate) to: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    Asked,
    /// [`Effect::Stopped`] was emitted.
    Done,
}

impl Router {
    /// The shell draws `nonce`. No two processes may have the same one, because ids are derived from it.
    pub fn new(limits: RouterLimits, nonce: u64) -> Router {
        let mut table = CapabilityTable::default();
        let builtins = builtin::install(&mut table);
        Router {
            ids: Ids::new(nonce),
            table,
            builtins,
            lanes: Lanes::new(limits.system_lane_max, limits.user_lane_max),
            microtasks: VecDeque::new(),
            conns: BTreeMap::new(),
            pending: PendingTable::default(),
            timeouts: Deadlines::default(),
            timers: Timers::default(),
            waiting_events: WaitingEvents::default(),
            drops: Drops::default(),
            deliveries: BTreeMap::new(),
            next_delivery: 0,
            trace: Trace::new(limits.trace_records_max, limits.trace_data_bytes_max),
            counters: Counters::default(),
            effects: Vec::new(),
            stop: Stop::No,
            start_id: None,
            limits,
        }
    }

    /// Installs capabilities at boot: all of them, or none on an error.
    pub fn install(&mut self, now: Now, manifests: Vec<Manifest>) -> Result<Vec<CapabilityId>, BootError> {
        self.replace(now, &[], manifests)
    }

    /// Replaces capabilities at reload, in one step: `gone` leave, `come` arrive. A leaving capability finishes the
    /// messages it has; then the engine emits [`Effect::Retired`].
    pub fn replace(
        &mut self,
        now: Now,
        gone: &[CapabilityId],
        come: Vec<Manifest>,
    ) -> Result<Vec<CapabilityId>, BootError> {
        // The limit is for the caller's capabilities: the table also holds the engine's own two.
        let ids = self.table.replace(gone, come, self.limits.capabilities_max + builtin::OWN)?;
        for id in &ids {
            let capability = self.table.name_of(*id).to_string();
            self.note(Note::CapabilityUp { capability }, Audience::Subscribers, None);
        }
        for id in gone {
            self.retire_if_empty(*id);
        }
        self.unheard_timers_try_again(now);
        self.drain_microtasks(now);
        Ok(ids)
    }

    /// The last step of boot; emits `Sys.BootComplete`. `rows` are those that the process before this one has left: its
    /// timers (keys with [`crate::TIMER_PREFIX`]) and the row at [`millrace_model::keys::ROUTER_ELAPSED`]. `boot` says
    /// which run of the machine this is, if the operating system can tell.
    pub fn restore(&mut self, now: Now, boot: Option<Boot>, rows: Vec<(String, Bytes)>) {
        let timers = self.restore_timers(now, boot, rows);
        let capabilities = self.gauges().capabilities;
        self.note(Note::BootComplete { capabilities, timers }, Audience::Subscribers, None);
        self.drain_microtasks(now);
    }

    /// Handles one input: a message goes into its lane, everything else is bookkeeping done at once.
    pub fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::Open { conn, by } => {
                self.conns.insert(conn, Conn { by, messages: 0, waits: BTreeMap::new(), timers: 0 });
            }
            Input::Identify { conn, by } => {
                if let Some(conn) = self.conns.get_mut(&conn) {
                    conn.by = by;
                }
            }
            Input::Close { conn } => self.close(conn),
            Input::Client { conn, message } => self.client(now, conn, message),
            Input::Emit { from, during, message, wait, trusted } => {
                self.emit(now, Emission { from, during, message, wait, trusted });
            }
            Input::BadEmit { from, during, fault } => self.bad_emit(now, from, during, &fault),
            Input::Handed { from, delivery } => self.handed(from, delivery),
            Input::GaveUp { from, delivery } => self.gave_up(now, from, delivery),
            Input::GivenBack { from, delivery } => self.given_back(now, from, delivery),
            Input::Done { from, delivery, result } => self.done(now, from, delivery, result),
            Input::Crashed { capability, begun, over, fault } => {
                self.crashed(now, capability, &begun, over.as_deref(), &fault);
            }
            Input::EventLost { capability, delivery, subscriber, message, reason } => {
                let one = self.deliveries.get(&(capability, delivery));
                if one.is_none_or(|one| one.timer.is_none()) {
                    self.drop_event(now, subscriber, None, &message, reason);
                }
            }
            Input::Unhealthy { capability, reason } => self.unhealthy(now, capability, reason),
            Input::Healthy { capability } => self.healthy(capability),
            Input::Retire { capability } => {
                // `replace` fails only because of new capabilities, and there are none.
                let _ = self.replace(now, &[capability], Vec::new());
            }
            Input::BusEvent { to, receipt, message } => {
                self.lanes.push_user(Task::Bus { to, receipt, message });
            }
            Input::SenderChecked { timer, result } => self.on_sender_checked(now, timer, result),
            Input::Committed { token, result } => self.timer_committed(now, token, result),
            Input::Stop => {
                if self.stop == Stop::No {
                    self.stop = Stop::Asked;
                }
            }
            Input::StopNow => self.stop_now(now),
        }
        // An input outside a turn leaves no microtasks for the next turn.
        self.drain_microtasks(now);
        self.stop_if_finished();
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Routes one message, does the bookkeeping and returns to the host. Returns false if no message waited.
    pub fn turn(&mut self, now: Now) -> bool {
        self.admit_due(now);
        let Some((lane, task)) = self.lanes.next() else {
            // Expired deadlines may have left microtasks.
            self.drain_microtasks(now);
            self.stop_if_finished();
            if cfg!(debug_assertions) {
                self.check_invariants();
            }
            return false;
        };
        self.counters.turns += 1;
        if lane == Lane::System {
            self.counters.system_turns += 1;
        }
        match task {
            Task::Client { conn, by, at, message } => self.route_client(now, conn, by, at, message),
            Task::Actor(said) => self.route_actor(now, said),
            Task::Bus { to, receipt, message } => self.route_bus(now, to, receipt, message),
            Task::Fired { timer, which, message } => self.route_fired(now, timer, which, message),
            Task::Own { except, message } => {
                let except = except.map(|id| self.table.name_of(id)).into_iter().collect();
                self.fan_out(now, (EventAuthor::Loop, None), &except, message);
            }
            Task::Timeout { id, delivery } => {
                self.time_out(now, &id, delivery);
            }
        }
        self.drain_microtasks(now);
        self.stop_if_finished();
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        true
    }

    /// Returns the effects for the shell to carry out, in order.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    /// Returns when the next turn is due even if no input arrives.
    pub fn next_deadline(&self) -> Option<Mono> {
        let timers = if self.stop == Stop::No { self.timers.first_due() } else { None };
        let drops = self.drops.first_due(self.limits.event_dropped_ms);
        let events = self.waiting_events.deadlines.first();
        self.timeouts.first().into_iter().chain(timers).chain(drops).chain(events).min()
    }

    /// Whether nothing is under way and nothing will happen by itself. Does not cover answers that the edges have not
    /// written to their connections yet: only they know of those.
    pub fn is_quiescent(&self) -> bool {
        self.lanes.is_empty()
            && self.pending.is_empty()
            && self.deliveries.is_empty()
            && self.timers.is_empty()
            && self.waiting_events.count == 0
    }

    /// Whether a turn would find a message to route at once.
    pub fn is_busy(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// The manifests of all capabilities that take requests, the loop's own included.
    pub fn directory(&self) -> impl Iterator<Item = (CapabilityId, &Arc<Manifest>)> {
        self.table.all().filter(|(_, one)| !one.retiring).map(|(id, one)| (id, &one.manifest))
    }

    /// All capabilities and what waits for them, the loop's own included, and those that leave.
    pub fn capabilities(&self) -> impl Iterator<Item = (CapabilityId, CapabilityState)> {
        self.table.all().map(|(id, one)| {
            let state = CapabilityState {
                manifest: one.manifest.clone(),
                unhealthy: one.unhealthy.clone(),
                is_leaving: one.retiring,
                in_mailbox: one.waiting,
                events_waiting: one.events.len(),
                asked: one.asked,
                owes: one.owes,
            };
            (id, state)
        })
    }

    /// Returns the trace of an undertaking, oldest first: at most `max` records with numbers above `after`, and only
    /// those that a caller who may act in the namespaces `from` may see.
    pub fn trace(&self, query: &TraceQuery, after: u64, max: usize, from: &Namespaces) -> Vec<TraceRecord> {
        self.trace.find(query, after, max, from)
    }

    /// Returns all records of the trace that such a caller may see, the oldest first, without their data.
    pub fn trace_outline(&self, from: &Namespaces) -> Vec<TraceRecord> {
        self.trace.outline(from)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many messages wait in the user lane.
    pub fn user_lane_len(&self) -> usize {
        self.lanes.lengths().1
    }

    pub fn gauges(&self) -> Gauges {
        let (system_lane, user_lane) = self.lanes.lengths();
        Gauges {
            connections: self.conns.len(),
            pending: self.pending.len(),
            system_lane,
            user_lane,
            in_mailboxes: self.deliveries.len(),
            timers: self.timers.len(),
            capabilities: self.directory().count() - builtin::OWN,
            unhealthy: self.table.all().filter(|(_, one)| one.unhealthy.is_some()).count(),
        }
    }

    /// A client's message goes into the user lane, whatever its type.
    fn client(&mut self, now: Now, conn: ConnId, message: OsMessage) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        state.messages += 1;
        let by = state.by.clone();
        let too_many = state.messages > self.limits.conn_messages_max;
        let over = too_many || !self.has_room();
        let fault = if self.stop != Stop::No {
            Some(OsFault::new(503, SHUTTING_DOWN))
        } else if over {
            self.counters.overloads += 1;
            Some(OsFault::new(503, "Too many messages wait: send more when some are answered"))
        } else {
            None
        };
        match fault {
            None => self.lanes.push_user(Task::Client { conn, by, at: now.mono, message }),
            Some(fault) if message.kind.is_request() => {
                self.refuse(now, OutcomeTo::Client(conn), &message, &fault);
            }
            Some(fault) => {
                for listener in self.table.listeners(&message.ty).to_vec() {
                    self.drop_event(
                        now,
                        self.table.name_of(listener),
                        None,
                        &message,
                        fault.message.to_string(),
                    );
                }
                self.microtasks.push_back(Microtask::Release { conn });
            }
        }
    }

    /// Whether one more message may wait for its turn in the user lane.
    pub(crate) fn has_room(&self) -> bool {
        self.lanes.lengths().1 + self.waiting_events.count < self.limits.user_lane_max
    }

    /// The client has disconnected. Its requests are still carried out, but nobody gets their outcomes.
    fn close(&mut self, conn: ConnId) {
        let Some(gone) = self.conns.remove(&conn) else { return };
        for (delivery, id) in gone.waits {
            self.forget(&id, delivery);
        }
    }

    /// Puts due request timeouts and timers into the lanes, as far as there is room.
    fn admit_due(&mut self, now: Now) {
        while self.lanes.system_has_room() {
            let Some((id, delivery)) = self.timeouts.pop_due(now.mono) else { break };
            self.lanes.push_system(Task::Timeout { id, delivery });
        }
        self.expire_events(now);
        self.tell_drops(now);
        if self.stop == Stop::No {
            self.keep_elapsed(now);
            self.fire_due(now);
        }
    }

    /// Ends a turn. No microtask creates another one: each arm ends in an effect, a counter or a lane.
    pub(crate) fn drain_microtasks(&mut self, now: Now) {
        while let Some(microtask) = self.microtasks.pop_front() {
            match microtask {
                Microtask::Answer { conn, message } => self.effects.push(Effect::Answer { conn, message }),
                Microtask::Release { conn } => {
                    if let Some(state) = self.conns.get_mut(&conn) {
                        state.messages = state.messages.saturating_sub(1);
                        self.effects.push(Effect::Release { conn, count: 1 });
                    }
                }
                Microtask::Note { note, to, cause } => self.publish_note(now, note, to, cause),
            }
        }
    }

    /// Answers a request that was not accepted with an error. The engine keeps no state for it.
    pub(crate) fn refuse(&mut self, now: Now, requester: OutcomeTo, request: &OsMessage, fault: &OsFault) {
        self.counters.refusals += 1;
        let realm = match requester {
            OutcomeTo::Client(conn) => self.realm_of_client(conn),
            OutcomeTo::Timer(timer) => {
                self.timers.all.get(&timer).and_then(Timer::requester).as_ref().and_then(realm_of)
            }
            OutcomeTo::Gone | OutcomeTo::Actor { .. } => None,
        };
        self.traced(now, self.party(requester), TraceStep::Refused { code: fault.code }, realm, request);
        let message = messages::error(&mut self.ids, now, &RequestRef::of(request), fault);
        self.give(requester, message);
    }

    /// The namespaces in which a connected client may act.
    pub(crate) fn realm_of_client(&self, conn: ConnId) -> Realm {
        self.conns.get(&conn).and_then(|conn| realm_of(&conn.by))
    }

    pub(crate) fn traced(
        &mut self,
        now: Now,
        from: Party,
        step: TraceStep,
        realm: Realm,
        message: &OsMessage,
    ) {
        if self.trace.is_on() {
            let record = self.trace.add(now.wall, from, step, realm, message);
            if self.limits.trace_effects {
                self.effects.push(Effect::Trace(record.clone()));
            }
        }
    }

    pub(crate) fn party(&self, requester: OutcomeTo) -> Party {
        match requester {
            OutcomeTo::Client(conn) => Party::Client(conn),
            OutcomeTo::Gone => Party::Loop,
            OutcomeTo::Actor { capability, .. } => Party::Capability(self.table.name_of(capability)),
            OutcomeTo::Timer(_) => Party::Timer,
        }
    }
}
