//! Flights: batched commits, one at a time. Each takes along all acts (`action.rs`) that have gathered, and claims for the
//! handlers that want more events.

use std::collections::VecDeque;

use millrace_model::{
    BATCH_BYTES_MAX, Batch, Claim, Done, Durability, HandlerOrder, Mono, Now, Op, Outcome, Refusal,
    Timestamp, TopicKey,
};

use crate::action::{Act, Then};
use crate::effect::{Effect, Note};
use crate::handler::Handler;
use crate::worker::{Pending, Phase, Worker};

/// Acts in one flight; further ones take the next.
const ACTS_MAX: usize = 1024;
/// Bytes of acts in one flight; the rest of the batch is for its claims. A larger act flies without other acts, and
/// with as many claims as still fit.
pub(crate) const ACT_BYTES_MAX: usize = BATCH_BYTES_MAX / 2;

/// A commit that is under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) acts: Vec<Act>,
    /// Index of the handler, and how many events it asked for.
    pub(crate) claims: Vec<(usize, usize)>,
    /// The time of the flight's batch.
    pub(crate) at: Timestamp,
}

/// Acts that wait for the next flight.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    waiting: VecDeque<Act>,
    /// When the oldest act stops waiting to share a commit.
    leave_at: Option<Mono>,
}

impl Gate {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts acts back to the front, in their order.
    pub(crate) fn back(&mut self, now: Mono, acts: Vec<Act>) {
        if !acts.is_empty() {
            self.leave_at = Some(now);
        }
        acts.into_iter().rev().for_each(|act| self.waiting.push_front(act));
    }

    pub(crate) fn leave_at(&self) -> Option<Mono> {
        self.leave_at
    }
}

impl Worker {
    /// Sends the act with the next flight, which leaves as soon as the last one is back.
    pub(crate) fn send(&mut self, now: Now, act: Act) {
        self.want_next_of_key(&act);
        self.gate.waiting.push_back(act);
        self.gate.leave_at = Some(now.mono);
    }

    /// Lets the act wait for a claim to share a commit with, for at most `ack_linger_ms`.
    pub(crate) fn send_later(&mut self, now: Now, act: Act) {
        self.want_next_of_key(&act);
        self.gate.waiting.push_back(act);
        self.gate.leave_at.get_or_insert(now.mono + self.config.ack_linger_ms);
    }

    /// For a handler in order of keys: the flight that ends an event may also claim the next one of its key, because
    /// acts come before claims in a batch.
    fn want_next_of_key(&mut self, act: &Act) {
        if let Some(handler) = act.ends_event_of().map(|at| &mut self.handlers[at]) {
            handler.wants_claim |= handler.is_ordered();
        }
    }

    pub(crate) fn depart(&mut self, now: Now) {
        if self.flight.is_some() || matches!(self.phase, Phase::Fresh | Phase::Failed | Phase::Stopped) {
            return;
        }
        let claims = self.wishes(now);
        let nothing_else = self.runs.is_empty() && self.queued() == 0;
        let acts_leave =
            !self.gate.is_empty() && (nothing_else || self.gate.leave_at.is_some_and(|at| at <= now.mono));
        if claims.is_empty() && !acts_leave {
            return;
        }
        self.ride_along(now);
        let (mut acts, mut bytes) = (Vec::new(), 0);
        while let Some(act) = self.gate.waiting.front() {
            let with_it = bytes + act.bytes();
            if !acts.is_empty() && (acts.len() >= ACTS_MAX || with_it > ACT_BYTES_MAX) {
                break;
            }
            bytes = with_it;
            acts.extend(self.gate.waiting.pop_front());
        }
        self.gate.leave_at = (!self.gate.waiting.is_empty()).then_some(now.mono);
        let claims = self.fitting(now, claims, BATCH_BYTES_MAX.saturating_sub(bytes));
        self.submit(now, Flight { acts, claims, at: now.wall });
    }

    /// Each handler gets its share of the room, and what those before it left over. A handler that gets nothing
    /// still wants a claim, and claims with the next commit.
    fn fitting(&self, now: Now, claims: Vec<(usize, usize)>, mut room: usize) -> Vec<(usize, usize)> {
        let mut left = claims.len();
        let mut fitting = Vec::with_capacity(left);
        for (at, wish) in claims {
            let one = self.claim(now, at, 1, 0).bytes().max(1);
            let share = (room / left.max(1) / one).max(1);
            let events_max = wish.min(share).min(room / one);
            left -= 1;
            room -= events_max * one;
            if events_max > 0 {
                fitting.push((at, events_max));
            }
        }
        fitting
    }

    fn claim(&self, now: Now, at: usize, events_max: usize, start_max: usize) -> Op {
        let handler = &self.handlers[at];
        Op::Claim(Claim {
            topic: handler.topic.clone(),
            handler: handler.spec.id.clone(),
            session: self.identity.session.clone(),
            events_max,
            bytes_max: self.config.claim_bytes_max,
            lease_until: now.wall + handler.limits.lease_ms,
            start_max,
            order: self.order_of(handler),
        })
    }

    fn order_of(&self, handler: &Handler) -> HandlerOrder {
        #[cfg(feature = "sabotage")]
        if self.config.sabotage == Some(crate::Sabotage::ForgetOrder) {
            return HandlerOrder::Priority;
        }
        handler.limits.order
    }

    fn wishes(&self, now: Now) -> Vec<(usize, usize)> {
        if self.phase != Phase::Working || self.holding || self.is_paused(now) {
            return Vec::new();
        }
        let place_free = self.places_taken() < self.config.handler_concurrency;
        // Slow runs occupy all places: leave the events to sessions that may be faster.
        if !place_free && self.runs.values().all(|run| self.is_stale(now, run.handler, &run.ticket)) {
            return Vec::new();
        }
        let wishes = self.order.iter().map(|at| (*at, self.handlers[*at].wish(now, place_free)));
        wishes.filter(|(_, wish)| *wish > 0).collect()
    }

    pub(crate) fn submit(&mut self, now: Now, mut flight: Flight) {
        flight.at = now.wall;
        // The clock was set back meanwhile: a schedule must not fire early, so it fires again when its time has come.
        flight.acts.retain(|act| match &act.then {
            Then::Fired { schedule, at, .. } if at.last().is_some_and(|fire| *fire > now.wall) => {
                self.not_yet(*schedule);
                false
            }
            _ => true,
        });
        let mut batch = Batch {
            nonce: self.draw.next(),
            now: now.wall,
            durability: Durability::Fsync,
            ..Batch::default()
        };
        for act in &flight.acts {
            batch.checks.extend(act.checks.iter().cloned());
            batch.ops.extend(act.ops.iter().cloned());
        }
        let starts = self.starts_of(now, &flight.claims);
        for ((at, events_max), start_max) in flight.claims.iter().zip(starts) {
            // This claim does not see events that become ready from here on.
            self.handlers[*at].wants_claim = false;
            batch.ops.push(self.claim(now, *at, *events_max, start_max));
        }
        let token = self.token(Pending::Flight);
        self.flight = Some(flight);
        self.effects.push(Effect::Commit { token, batch });
    }

    pub(crate) fn flight_back(&mut self, now: Now, outcome: Outcome) {
        let Some(mut flight) = self.flight.take() else { return };
        match outcome {
            Outcome::Done(done) => self.on_committed(now, flight, done),
            Outcome::Refused(refusal) => {
                self.leave_out(now, &mut flight, &refusal);
                if !flight.acts.is_empty() || !flight.claims.is_empty() {
                    self.submit(now, flight);
                }
            }
        }
    }

    /// A check of one act was refused: repeats the flight without that act.
    fn leave_out(&mut self, now: Now, flight: &mut Flight, refusal: &Refusal) {
        let mut first = 0;
        let at = flight.acts.iter().position(|act| {
            first += act.checks.len();
            refusal.check < first
        });
        if let Some(at) = at {
            let act = flight.acts.remove(at);
            self.refused(now, act, refusal);
        }
    }

    fn refused(&mut self, now: Now, act: Act, refusal: &Refusal) {
        match act.then {
            Then::Acked { handler, event }
            | Then::Released { handler, event, .. }
            | Then::RunAgain { handler, event, .. }
            | Then::Snoozed { handler, event, .. }
            | Then::Discarded { handler, event, .. }
            | Then::DeadLettered { handler, event, .. } => {
                self.effects.push(Effect::Note(Note::LeaseExpired { handler, event: event.id.clone() }));
            }
            Then::Renewed { run, .. } => self.lease_lost(now, run),
            Then::Marked { run, .. } => self.mark_refused(now, run),
            Then::Fired { schedule, .. } => self.fire_refused(now, schedule, refusal.found.as_ref()),
            // Another session has the event, or has registered the handler first.
            Then::GivenBack { .. } | Then::Nothing => {}
        }
    }

    fn on_committed(&mut self, now: Now, flight: Flight, done: Done) {
        // The first flights carry the registration; it is complete when no act is waiting any more.
        self.registered |= self.gate.is_empty();
        for act in flight.acts {
            self.note_appends(&act.ops);
            // A claim in this same flight has already seen that the event ended; otherwise the next claim must.
            if act.ends_event_of().is_none_or(|of| flight.claims.iter().all(|(at, _)| *at != of)) {
                self.want_next_of_key(&act);
            }
            self.carried(now, act.then);
        }
        let mut got = vec![0; flight.claims.len()];
        for claimed in done.claimed {
            let owner = flight.claims.iter().position(|(at, _)| {
                let handler = &self.handlers[*at];
                handler.spec.id == claimed.ticket.handler
            });
            if let Some(owner) = owner {
                got[owner] += 1;
                let at = flight.claims[owner].0;
                self.handlers[at].enqueue(claimed);
            }
        }
        // `more` is a single flag for all claims: if some claim got all it asked for, it is taken to mean that one.
        let some_full = flight.claims.iter().zip(&got).any(|((_, asked), got)| got >= asked);
        for ((at, asked), got) in flight.claims.iter().zip(&got) {
            let look_at = now.mono + self.config.event_poll_interval_ms;
            let handler = &mut self.handlers[*at];
            let already = handler.wants_claim;
            handler.on_claimed(*asked, *got, done.more && !some_full, look_at);
            handler.wants_claim |= already;
            if std::mem::take(&mut handler.unsure) && !handler.wants_claim {
                self.ask_due(*at, flight.at);
            }
        }
        if self.phase == Phase::Stopping {
            self.give_all_back(now);
        }
    }

    fn carried(&mut self, now: Now, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Acked { .. } => self.counts.succeeded += 1,
            Then::Released { handler, event, attempts, due, error } => {
                self.counts.failed += 1;
                self.handlers[handler].ready_again_at(due);
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::Failed {
                    handler,
                    event,
                    attempts,
                    retry_at: due,
                    error,
                }));
            }
            Then::Snoozed { handler, event, snoozes, due, reason } => {
                self.counts.snoozed += 1;
                self.handlers[handler].ready_again_at(due);
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::Snoozed {
                    handler,
                    event,
                    snoozes,
                    until: due,
                    reason,
                }));
            }
            Then::Discarded { handler, event, reason } => {
                self.counts.discarded += 1;
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::Discarded { handler, event, reason }));
            }
            Then::DeadLettered { handler, event, attempts, error } => {
                self.counts.dead_lettered += 1;
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::DeadLettered { handler, event, attempts, error }));
            }
            Then::RunAgain { handler, event, identity, conflicts, due } => {
                self.handlers[handler].ready_again_at(due);
                self.repeats_until = self.repeats_until.max(due);
                let (event, retry_at) = (event.id.clone(), due);
                self.effects.push(Effect::Note(Note::Conflict {
                    handler,
                    event,
                    identity,
                    conflicts,
                    retry_at,
                }));
            }
            Then::GivenBack { handler } => self.handlers[handler].wants_claim = true,
            Then::Renewed { run, ticket } => self.renewed(now, run, ticket),
            Then::Marked { run, ticket } => self.marked(now, run, ticket),
            Then::Fired { schedule, row, at } => self.fired(schedule, row, &at),
        }
    }

    /// Wakes the handlers of these topics: they have something to claim, now or when it is due.
    pub(crate) fn note_appends(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Append(append) => self.news_of(&append.stream.topic),
                Op::Delay(delay) => self.expect_due(&delay.key),
                _ => {}
            }
        }
    }

    pub(crate) fn news_of(&mut self, topic: &TopicKey) {
        for handler in self.handlers.iter_mut().filter(|handler| handler.topic == *topic) {
            handler.wants_claim = true;
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.handlers.iter().map(Handler::queued).sum()
    }
}
