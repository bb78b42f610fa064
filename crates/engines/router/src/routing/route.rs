//! Routing by kind: requests to exactly one mailbox, events to every subscriber's, outcomes to their requester.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_model::{Mono, Now, OsFault, OsId, OsKind, OsMessage, Requester, TICK_MS};

use crate::interface::effect::{Effect, Settled};
use crate::interface::input::{CapabilityId, ConnId, DeliveryId, Receipt};
use crate::interface::note::Note;
use crate::reports::queries::Takes;
use crate::reports::trace::{Behalf, Party, Realm, TraceStep, realm_of};
use crate::router::{DeliveryEntry, Router, TimerEvent};
use crate::routing::events::EventAuthor;
use crate::routing::lanes::Microtask;
use crate::routing::pending::{OutcomeTo, PendingRequest};
use crate::timing::builtin::TIMER_FIRED;
use crate::timing::timers::TimerMessage;

/// The message of the 504 error that ends a request.
pub(crate) const TIMED_OUT: &str = "Request timed out";

/// The type of the event in which a bus event reaches a capability.
pub(crate) const BUS_MESSAGE: &str = "Bus.Message";

/// Events that a client may not send.
const OWN_EVENTS: [&str; 2] = [TIMER_FIRED, BUS_MESSAGE];

impl Router {
    pub(crate) fn route_client(
        &mut self,
        now: Now,
        conn: ConnId,
        by: Requester,
        at: Mono,
        message: OsMessage,
    ) {
        let there = self.conns.contains_key(&conn);
        match message.kind {
            OsKind::Command | OsKind::Query => {
                self.counters.requests += 1;
                let requester = if there { OutcomeTo::Client(conn) } else { OutcomeTo::Gone };
                self.request(now, requester, Behalf::of(by), at, message);
                return;
            }
            // Only the timer and the bus may send these, because actors act on them.
            OsKind::Event if OWN_EVENTS.contains(&message.ty.as_str()) => {
                self.counters.events_undelivered += 1;
                let step = TraceStep::Refused { code: 403 };
                self.traced(now, Party::Client(conn), step, realm_of(&by), &message);
            }
            OsKind::Event => {
                let author = (EventAuthor::Client(conn), realm_of(&by));
                if self.fan_out(now, author, &BTreeSet::new(), message).waiting > 0 {
                    // The client gets its slot back when the waiting event has been delivered or dropped.
                    return;
                }
            }
            // A client has no requests to answer: its outcome would answer another client's request.
            OsKind::Reply | OsKind::Error => self.orphan(now, Party::Client(conn), None, &message),
        }
        if there {
            self.microtasks.push_back(Microtask::Release { conn });
        }
    }

    /// Routes a request to exactly one capability, or answers it with an error at once. The request arrived at `since`.
    pub(crate) fn request(
        &mut self,
        now: Now,
        requester: OutcomeTo,
        behalf: Behalf,
        since: Mono,
        message: OsMessage,
    ) {
        let deadline = self.deadline(since);
        if requester != OutcomeTo::Gone && deadline.is_some_and(|at| at <= now.mono) {
            return self.came_too_late(now, requester, &message);
        }
        let message = Arc::new(message);
        match (self.try_request(now, requester, behalf, deadline, &message), requester) {
            (Ok(()), _) => {}
            // A timer tries again later: its message is not lost because a capability has no room at present.
            (Err(fault), OutcomeTo::Timer(timer)) if fault.code == 503 => {
                self.hold_timer(now, timer, &message);
            }
            (Err(fault), _) => self.refuse(now, requester, &message, &fault),
        }
    }

    fn try_request(
        &mut self,
        now: Now,
        requester: OutcomeTo,
        behalf: Behalf,
        deadline: Option<Mono>,
        message: &Arc<OsMessage>,
    ) -> Result<(), OsFault> {
        let id = &message.metadata.id;
        if self.pending.contains(requester, id) {
            return Err(OsFault::new(409, format!("Duplicate request id: {id}")));
        }
        if self.pending.len() >= self.limits.pending_max {
            self.counters.overloads += 1;
            return Err(OsFault::new(503, "Too many requests wait for their outcome: try again later"));
        }
        let to = self.find_handler(requester, message)?;
        let name = self.table.name_of(to);
        self.routed(message, requester.capability(), std::slice::from_ref(&name));
        let step = TraceStep::Routed { to: vec![name] };
        self.traced(now, self.party(requester), step, behalf.realm.clone(), message);
        let delivery = self.next_delivery();
        self.expect(requester, to, delivery, deadline, behalf.realm.clone(), message);
        if self.builtins.is(to) {
            // The loop's own commands are bookkeeping: answered within this turn or after a commit.
            self.builtin_request(now, requester, &behalf.by, delivery, message);
        } else {
            self.post(to, delivery, message.clone(), behalf, None, None);
        }
        Ok(())
    }

    /// Returns the capability that handles this request, if it exists, is healthy and has room, and the data fits its
    /// schema.
    fn find_handler(&mut self, requester: OutcomeTo, message: &OsMessage) -> Result<CapabilityId, OsFault> {
        let (kind, ty) = (message.kind, &message.ty);
        let Some(to) = self.table.handler(kind, ty) else {
            let note = Note::RoutingError { kind, ty: ty.clone(), id: message.metadata.id.clone() };
            self.counters.routing_errors += 1;
            self.note_about(message, requester.capability(), note);
            return Err(match self.table.other_kind(kind, ty) {
                Some(other) => {
                    OsFault::new(404, format!("'{ty}' is a {other}, not a {kind}: send it as a {other}."))
                }
                None => OsFault::new(404, format!("Capability '{ty}' not found in registry.")),
            });
        };
        let Some(capability) = self.table.get(to) else {
            return Err(OsFault::new(404, format!("Capability '{ty}' not found in registry.")));
        };
        let branch = capability.branch(kind, ty);
        if let Some(Err(mismatch)) = branch.map(|branch| branch.data.check(&message.data)) {
            return Err(OsFault::new(422, format!("Schema validation failed: {mismatch}")));
        }
        if let Some(reason) = &capability.unhealthy {
            let name = capability.name();
            return Err(OsFault::new(503, format!("Capability '{name}' is unhealthy: {reason}")));
        }
        if capability.waiting >= self.limits.mailbox_max {
            let name = capability.name().clone();
            self.counters.overloads += 1;
            return Err(OsFault::new(503, format!("The mailbox of '{name}' is full: try again later")));
        }
        Ok(to)
    }

    /// Adds the request to the pending ones before it is dispatched, as section 14.3 of RFC 0032 requires.
    fn expect(
        &mut self,
        requester: OutcomeTo,
        to: CapabilityId,
        delivery: DeliveryId,
        deadline: Option<Mono>,
        realm: Realm,
        message: &OsMessage,
    ) {
        // A client that has disconnected waits for no outcome.
        if requester == OutcomeTo::Gone {
            return;
        }
        let id = message.metadata.id.clone();
        let deadline = deadline.map(|at| self.timeouts.set(at, (id.clone(), delivery)));
        match requester {
            OutcomeTo::Actor { capability, .. } => {
                if let Some(asker) = self.table.get_mut(capability) {
                    asker.asked += 1;
                }
            }
            OutcomeTo::Client(conn) => {
                if let Some(conn) = self.conns.get_mut(&conn) {
                    conn.waits.insert(delivery, id.clone());
                }
            }
            OutcomeTo::Gone | OutcomeTo::Timer(_) => {}
        }
        if let Some(handler) = self.table.get_mut(to) {
            handler.owes += 1;
        }
        let (ty, correlation) = (message.ty.clone(), message.metadata.correlation.clone());
        self.pending.insert(id, PendingRequest { requester, to, delivery, ty, correlation, deadline, realm });
    }

    /// When a request that arrived at `since` times out.
    fn deadline(&self, since: Mono) -> Option<Mono> {
        let wait_ms = self.limits.request_timeout_ms;
        (wait_ms > 0).then(|| since + wait_ms + TICK_MS)
    }

    /// The request timed out while it waited for its turn: it is not started, because nobody waits for it any more.
    fn came_too_late(&mut self, now: Now, requester: OutcomeTo, message: &OsMessage) {
        self.counters.timeouts += 1;
        self.refuse(now, requester, message, &OsFault::new(504, TIMED_OUT));
        let note = Note::RequestTimedOut { ty: message.ty.clone(), id: message.metadata.id.clone() };
        self.note_about(message, requester.capability(), note);
    }

    pub(crate) fn next_delivery(&mut self) -> DeliveryId {
        self.next_delivery += 1;
        DeliveryId(self.next_delivery)
    }

    /// Puts a message into a mailbox; the caller has checked that there is room.
    pub(crate) fn post(
        &mut self,
        to: CapabilityId,
        delivery: DeliveryId,
        message: Arc<OsMessage>,
        Behalf { by, realm }: Behalf,
        receipt: Option<Receipt>,
        timer: Option<(u64, TimerMessage)>,
    ) {
        let Some(capability) = self.table.get_mut(to) else { return };
        capability.waiting += 1;
        let timer = timer.map(|(timer, which)| TimerEvent { timer, which, to: capability.name().clone() });
        let (id, correlation) = (message.metadata.id.clone(), message.metadata.correlation.clone());
        let is_sys = message.ty.is_sys();
        let sender = timer.as_ref().and_then(|event| self.timers.all.get(&event.timer));
        let owed = sender.is_some_and(|timer| timer.durable);
        let one = DeliveryEntry { id, correlation, is_sys, receipt, timer, handed: false, realm };
        self.deliveries.insert((to, delivery), one);
        self.effects.push(Effect::Post { to, delivery, message, by, owed });
    }

    /// Routes a bus event to one capability, which reports when it has processed it.
    pub(crate) fn route_bus(&mut self, now: Now, to: CapabilityId, receipt: Receipt, message: OsMessage) {
        if self.takes(to) != Takes::Now {
            self.counters.events_undelivered += 1;
            self.effects.push(Effect::Settle { receipt, settled: Settled::Unseen });
            return;
        }
        self.counters.events += 1;
        self.traced(now, Party::Bus, TraceStep::Routed { to: vec![self.table.name_of(to)] }, None, &message);
        let delivery = self.next_delivery();
        self.post(to, delivery, Arc::new(message), Behalf::trusted(None), Some(receipt), None);
    }

    /// Records an outcome that nobody waits for. Orphans are never delivered to anybody.
    pub(crate) fn orphan(
        &mut self,
        now: Now,
        from: Party,
        author: Option<CapabilityId>,
        message: &OsMessage,
    ) {
        self.counters.orphan_outcomes += 1;
        let realm = match &from {
            Party::Client(conn) => self.realm_of_client(*conn),
            _ => None,
        };
        self.traced(now, from.clone(), TraceStep::Orphan, realm, message);
        let from = match from {
            Party::Client(conn) => format!("client {}", conn.0),
            Party::Capability(name) => name.to_string(),
            other => format!("{other:?}"),
        };
        let OsMessage { ty, metadata, .. } = message;
        let (id, causation): (OsId, Option<OsId>) = (metadata.id.clone(), metadata.causation.clone());
        self.note_about(message, author, Note::OrphanOutcome { from, ty: ty.clone(), id, causation });
    }
}
