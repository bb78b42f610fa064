//! How requests end: outcomes, errors of the loop, timeouts, faults of actors.

use std::sync::Arc;

use millrace_model::{Mono, Now, OsFault, OsId, OsKind, OsMessage};

use crate::interface::effect::Effect;
use crate::interface::input::{CapabilityId, DeliveryId};
use crate::interface::note::{Audience, Cause, Note};
use crate::reports::messages::{self, RequestRef};
use crate::reports::trace::{Behalf, Party, Realm, TraceStep};
use crate::router::Router;
use crate::routing::lanes::{Answers, InProgress, Microtask};
use crate::routing::pending::{OutcomeTo, PendingRequest};
use crate::routing::route::TIMED_OUT;

impl Router {
    pub(crate) fn actor_request(
        &mut self,
        now: Now,
        from: CapabilityId,
        wait: bool,
        at: Mono,
        realm: Realm,
        message: OsMessage,
    ) {
        let requester = OutcomeTo::Actor { capability: from, wait };
        let asked = self.table.get(from).map_or(0, |one| one.asked);
        if asked >= self.limits.actor_requests_max {
            self.counters.overloads += 1;
            let fault = OsFault::new(503, "Too many requests of this capability wait for their outcome");
            self.refuse(now, requester, &message, &fault);
        } else {
            self.request(now, requester, Behalf::trusted(realm), at, message);
        }
    }

    /// Matches an outcome to its request by causation; `answers` tells two uses of one request id apart.
    pub(crate) fn outcome(&mut self, now: Now, from: CapabilityId, answers: Answers, message: OsMessage) {
        let party = Party::Capability(self.table.name_of(from));
        let Some(cause) = message.metadata.causation.clone() else {
            // An error that names no request is only recorded in the trace.
            self.traced(now, party, TraceStep::Orphan, None, &message);
            return;
        };
        let found = self.pending.answered(from, answers, &cause);
        let Some(pending) = found.and_then(|delivery| self.forget(&cause, delivery)) else {
            self.orphan(now, party, Some(from), &message);
            return;
        };
        match message.kind {
            OsKind::Error => self.counters.errors += 1,
            _ => self.counters.replies += 1,
        }
        let message = with_correlation(message, pending.correlation);
        let step = TraceStep::Answered { to: self.party(pending.requester) };
        self.traced(now, party, step, pending.realm, &message);
        self.give(pending.requester, message);
    }

    /// Removes a pending request. A later outcome for it is an orphan.
    pub(crate) fn forget(&mut self, id: &OsId, delivery: DeliveryId) -> Option<PendingRequest> {
        let pending = self.pending.remove(id, delivery)?;
        if let Some(deadline) = pending.deadline {
            self.timeouts.cancel(deadline);
        }
        match pending.requester {
            OutcomeTo::Actor { capability, .. } => {
                if let Some(asker) = self.table.get_mut(capability) {
                    asker.asked = asker.asked.saturating_sub(1);
                    self.retire_if_empty(capability);
                }
            }
            OutcomeTo::Client(conn) => {
                if let Some(conn) = self.conns.get_mut(&conn) {
                    conn.waits.remove(&delivery);
                }
            }
            OutcomeTo::Gone | OutcomeTo::Timer(_) => {}
        }
        if let Some(handler) = self.table.get_mut(pending.to) {
            handler.owes = handler.owes.saturating_sub(1);
        }
        self.retire_if_empty(pending.to);
        Some(pending)
    }

    /// Hands an outcome to its requester.
    pub(crate) fn give(&mut self, requester: OutcomeTo, message: OsMessage) {
        match requester {
            OutcomeTo::Client(conn) => {
                if self.conns.contains_key(&conn) {
                    self.microtasks.push_back(Microtask::Answer { conn, message });
                    self.microtasks.push_back(Microtask::Release { conn });
                }
            }
            OutcomeTo::Gone => {}
            OutcomeTo::Actor { capability, wait: true } => {
                // The actor has this message although it bypassed the mailbox, so it may name it as a cause.
                let metadata = &message.metadata;
                self.remember(capability, metadata.id.clone(), metadata.correlation.clone());
                self.effects.push(Effect::Outcome { to: capability, message: Arc::new(message) });
            }
            OutcomeTo::Actor { capability, wait: false } => self.give_declared(capability, message),
            // Nobody reads this answer; it only means that the timer has done its work.
            OutcomeTo::Timer(timer) => self.timer_request_ended(timer),
        }
    }

    /// Puts an outcome into the mailbox of the requesting actor, if its manifest declares an inbound branch for it.
    fn give_declared(&mut self, to: CapabilityId, message: OsMessage) {
        let wants = self.table.get(to).is_some_and(|one| {
            one.branch(message.kind, &message.ty).is_some()
                && one.unhealthy.is_none()
                && one.waiting < self.limits.mailbox_max
        });
        if wants {
            let delivery = self.next_delivery();
            self.post(to, delivery, Arc::new(message), Behalf::trusted(None), None, None);
        }
    }

    /// Answers a pending request with an error from the loop itself.
    pub(crate) fn fail(&mut self, now: Now, id: &OsId, delivery: DeliveryId, fault: &OsFault) -> bool {
        let Some(pending) = self.forget(id, delivery) else { return false };
        self.counters.refusals += 1;
        let asked = RequestRef { id: id.clone(), ty: pending.ty, correlation: pending.correlation };
        let message = messages::error(&mut self.ids, now, &asked, fault);
        let step = TraceStep::Answered { to: self.party(pending.requester) };
        self.traced(now, Party::Loop, step, pending.realm, &message);
        self.give(pending.requester, message);
        true
    }

    /// Times out a request (`Sys.RequestTimeout`). Does nothing and returns false if it is no longer pending.
    pub(crate) fn time_out(&mut self, now: Now, id: &OsId, delivery: DeliveryId) -> bool {
        let found = [true, false].into_iter().find_map(|client| {
            let found = self.pending.get(id, client).filter(|one| one.delivery == delivery)?;
            let cause = Cause { id: id.clone(), correlation: found.correlation.clone() };
            Some((found.ty.clone(), found.requester.capability(), cause))
        });
        let Some((ty, asker, cause)) = found else { return false };
        self.counters.timeouts += 1;
        self.fail(now, id, delivery, &OsFault::new(504, TIMED_OUT));
        let to = asker.map_or(Audience::Subscribers, Audience::SubscribersBut);
        self.note(Note::RequestTimedOut { ty, id: id.clone() }, to, Some(cause));
        true
    }

    /// Emits `Sys.ActorFault`, and answers the request that the actor was working on with the error.
    pub(crate) fn fault(
        &mut self,
        now: Now,
        from: CapabilityId,
        in_progress: Option<InProgress>,
        fault: &OsFault,
    ) {
        self.counters.actor_faults += 1;
        let request = in_progress.as_ref().map(|in_progress| in_progress.id.clone());
        let cause = in_progress.as_ref().map(|in_progress| Cause {
            id: in_progress.id.clone(),
            correlation: in_progress.correlation.clone(),
        });
        let mut to = Audience::SubscribersBut(from);
        if let Some(in_progress) = in_progress {
            if in_progress.is_sys {
                to = Audience::Nobody;
            }
            self.fail(now, &in_progress.id, in_progress.delivery, fault);
        }
        let capability = self.table.name_of(from).to_string();
        self.note(Note::ActorFault { capability, message: fault.message.clone(), request }, to, cause);
    }
}

/// An outcome gets the correlation of its request, whatever the actor set.
fn with_correlation(mut message: OsMessage, correlation: Option<OsId>) -> OsMessage {
    if correlation.is_some() {
        message.metadata.correlation = correlation;
    }
    message
}
