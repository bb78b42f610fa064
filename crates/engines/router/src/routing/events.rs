//! Events: put into the mailbox of every subscriber. No actor runs here, and the loop never blocks.
//!
//! An event whose subscriber has a full mailbox waits for a free slot if its author can wait: a client has one message
//! fewer to send meanwhile, a timer keeps its row. An event of a capability does not wait, because capabilities that
//! wait for one another in a circle would deadlock: the event is dropped and reported as `Sys.EventDropped`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::{Now, OsMessage, TICK_MS};

use crate::capabilities::schema::SchemaMismatch;
use crate::interface::input::{CapabilityId, ConnId};
use crate::reports::trace::{Behalf, Party, Realm, TraceStep};
use crate::router::{Router, TimerEvent};
use crate::routing::lanes::Microtask;
use crate::timing::deadlines::{Deadline, Deadlines};
use crate::timing::timers::TimerMessage;

/// The sender of an event, and what happens if a subscriber's mailbox is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventAuthor {
    /// The event waits as long as a request would, and counts against the client's limit of messages meanwhile.
    Client(ConnId),
    /// The event waits as long as necessary.
    Timer { timer: u64, which: TimerMessage },
    /// The event is dropped.
    Capability(CapabilityId),
    /// An event of the loop about itself: dropped without a report.
    Loop,
}

/// A copy of an event that waits for a free slot in one mailbox.
#[derive(Debug)]
pub(crate) struct WaitingEvent {
    /// The number of the event. All copies of an event have the same number.
    event: u64,
    author: EventAuthor,
    realm: Realm,
    message: Arc<OsMessage>,
    until: Option<Deadline>,
}

/// All events that wait for a slot in a mailbox. Their number is bounded together with the user lane.
#[derive(Debug, Default)]
pub(crate) struct WaitingEvents {
    pub(crate) count: usize,
    /// By number of the event: the client whose message it is, and how many copies of the event still wait.
    held: BTreeMap<u64, (ConnId, usize)>,
    pub(crate) deadlines: Deadlines<(CapabilityId, u64)>,
    next: u64,
}

/// The result of sending an event to its subscribers.
#[derive(Debug, Default)]
pub(crate) struct FanOut {
    /// How many subscribers the event was meant for.
    pub(crate) listeners: usize,
    /// Subscribers that have the event, or will have it when their mailbox has a free slot.
    pub(crate) taken: Vec<Arc<str>>,
    /// How many of those have it waiting.
    pub(crate) waiting: usize,
    /// Subscribers that take nothing at present.
    pub(crate) down: Vec<CapabilityId>,
    /// The reason of the last subscriber whose schema the event does not fit.
    pub(crate) misfit: Option<String>,
}

/// Whether a subscriber can take an event.
enum Fit {
    Now,
    Full,
    Down(String),
    Misfit(SchemaMismatch),
}

impl EventAuthor {
    fn capability(self) -> Option<CapabilityId> {
        match self {
            EventAuthor::Capability(id) => Some(id),
            EventAuthor::Client(_) | EventAuthor::Timer { .. } | EventAuthor::Loop => None,
        }
    }
}

impl Router {
    /// Sends an event to every subscriber, its author included, except those named in `except`.
    pub(crate) fn fan_out(
        &mut self,
        now: Now,
        (author, realm): (EventAuthor, Realm),
        except: &BTreeSet<Arc<str>>,
        message: OsMessage,
    ) -> FanOut {
        self.counters.events += 1;
        self.waiting_events.next += 1;
        let event = self.waiting_events.next;
        let all = self.table.listeners(&message.ty).to_vec();
        let mut fan_out = FanOut::default();
        let message = Arc::new(message);
        for listener in all {
            let name = self.table.name_of(listener);
            if except.contains(&name) {
                continue;
            }
            fan_out.listeners += 1;
            match (self.fits(now, listener, author, &message), author) {
                (Fit::Now, _) => {
                    fan_out.taken.push(name);
                    self.post_event(listener, author, realm.clone(), message.clone());
                }
                (Fit::Full, EventAuthor::Client(_) | EventAuthor::Timer { .. }) => {
                    fan_out.taken.push(name);
                    fan_out.waiting += 1;
                    self.wait_for_place(now, listener, event, (author, realm.clone()), message.clone());
                }
                (Fit::Down(_), EventAuthor::Timer { .. }) => fan_out.down.push(listener),
                (Fit::Full, _) => {
                    let reason = "its mailbox is full".to_owned();
                    self.drop_event(now, name, author.capability(), &message, reason);
                }
                (Fit::Down(reason), _) => {
                    self.drop_event(now, name, author.capability(), &message, reason);
                }
                (Fit::Misfit(mismatch), _) => {
                    let reason = format!("Schema validation failed: {mismatch}");
                    self.drop_event(now, name, author.capability(), &message, reason.clone());
                    fan_out.misfit = Some(reason);
                }
            }
        }
        if fan_out.listeners == 0 {
            self.counters.events_unheard += 1;
        }
        self.routed(&message, author.capability(), &fan_out.taken);
        let from = self.event_party(author);
        self.traced(now, from, TraceStep::Routed { to: fan_out.taken.clone() }, realm, &message);
        fan_out
    }

    fn event_party(&self, author: EventAuthor) -> Party {
        match author {
            EventAuthor::Client(conn) => Party::Client(conn),
            EventAuthor::Timer { .. } => Party::Timer,
            EventAuthor::Capability(id) => Party::Capability(self.table.name_of(id)),
            EventAuthor::Loop => Party::Loop,
        }
    }

    fn fits(&self, now: Now, id: CapabilityId, author: EventAuthor, message: &OsMessage) -> Fit {
        let Some(one) = self.table.get(id) else { return Fit::Down("it is gone".to_owned()) };
        let branch = one.branch(message.kind, &message.ty);
        if let Some(Err(mismatch)) = branch.map(|branch| branch.data.check(&message.data)) {
            return Fit::Misfit(mismatch);
        }
        if let Some(reason) = &one.unhealthy {
            return Fit::Down(format!("it is unhealthy: {reason}"));
        }
        // An older timer's event waits for this subscriber to recover, and no younger one may overtake it.
        let is_held = self.timers.held.get(&id).is_some_and(|until| *until > now.mono);
        if is_held && matches!(author, EventAuthor::Timer { .. }) {
            return Fit::Down("it was down".to_owned());
        }
        if one.waiting >= self.limits.mailbox_max { Fit::Full } else { Fit::Now }
    }

    fn post_event(&mut self, to: CapabilityId, author: EventAuthor, realm: Realm, message: Arc<OsMessage>) {
        let delivery = self.next_delivery();
        let timer = match author {
            EventAuthor::Timer { timer, which } => Some((timer, which)),
            _ => None,
        };
        self.post(to, delivery, message, Behalf::trusted(realm), None, timer);
    }

    /// Queues the event behind those that wait for this mailbox already.
    fn wait_for_place(
        &mut self,
        now: Now,
        to: CapabilityId,
        event: u64,
        (author, realm): (EventAuthor, Realm),
        message: Arc<OsMessage>,
    ) {
        let Some(capability) = self.table.get_mut(to) else { return };
        let wait_ms = self.limits.request_timeout_ms;
        let mut until = None;
        if let EventAuthor::Client(conn) = author {
            self.waiting_events.held.entry(event).or_insert((conn, 0)).1 += 1;
            until = (wait_ms > 0)
                .then(|| self.waiting_events.deadlines.set(now.mono + wait_ms + TICK_MS, (to, event)));
        }
        self.waiting_events.count += 1;
        capability.events.push_back(WaitingEvent { event, author, realm, message, until });
    }

    /// A slot in this mailbox is free: waiting events get it before any message that is routed next.
    pub(crate) fn place_is_free(&mut self, to: CapabilityId) {
        let max = self.limits.mailbox_max;
        while let Some(capability) = self.table.get_mut(to).filter(|one| one.waiting < max)
            && let Some(waiting) = capability.events.pop_front()
        {
            self.no_longer_waits(&waiting);
            self.post_event(to, waiting.author, waiting.realm, waiting.message);
        }
    }

    /// Drops clients' events that have waited for a slot as long as a request would have waited for its outcome.
    pub(crate) fn expire_events(&mut self, now: Now) {
        while let Some((to, event)) = self.waiting_events.deadlines.pop_due(now.mono) {
            let Some(capability) = self.table.get_mut(to) else { continue };
            let Some(at) = capability.events.iter().position(|one| one.event == event) else { continue };
            let Some(waiting) = capability.events.remove(at) else { continue };
            self.no_longer_waits(&waiting);
            let reason = format!("its mailbox was full for {} ms", self.limits.request_timeout_ms);
            self.drop_event(now, self.table.name_of(to), None, &waiting.message, reason);
        }
    }

    /// No slot will become free in this mailbox: waiting events are dropped, those of timers are tried again later.
    pub(crate) fn give_up_places(&mut self, now: Now, to: CapabilityId, reason: &str) {
        let Some(capability) = self.table.get_mut(to) else { return };
        for waiting in std::mem::take(&mut capability.events) {
            self.no_longer_waits(&waiting);
            match waiting.author {
                EventAuthor::Timer { timer, which } => {
                    let event = TimerEvent { timer, which, to: self.table.name_of(to) };
                    self.timer_event_unseen(now, &event, to);
                }
                _ => self.drop_event(now, self.table.name_of(to), None, &waiting.message, reason.to_owned()),
            }
        }
    }

    fn no_longer_waits(&mut self, waiting: &WaitingEvent) {
        let events = &mut self.waiting_events;
        events.count = events.count.saturating_sub(1);
        if let Some(deadline) = waiting.until {
            events.deadlines.cancel(deadline);
        }
        // The client may send one more message when no copy of its event waits any more.
        let Some((conn, copies)) = events.held.get_mut(&waiting.event) else { return };
        *copies -= 1;
        if *copies == 0 {
            let conn = *conn;
            events.held.remove(&waiting.event);
            self.microtasks.push_back(Microtask::Release { conn });
        }
    }
}
