//! What actors say, and how requests end.

use std::sync::Arc;

use millrace_model::{Now, OsFault, OsId, OsKind, OsMessage};

use crate::effect::Effect;
use crate::input::{CapabilityId, DeliveryId};
use crate::lanes::Microtask;
use crate::make::{self, Asked};
use crate::note::Note;
use crate::pending::{Pending, Requester};
use crate::router::Router;
use crate::trace::{Party, Step};

impl Router {
    pub(crate) fn route_actor(
        &mut self,
        now: Now,
        from: CapabilityId,
        during: Option<DeliveryId>,
        message: OsMessage,
        wait: bool,
    ) {
        let Some(capability) = self.table.get(from) else { return };
        let party = Party::Capability(capability.name().clone());
        if let Err(why) = self.check_said(from, during, &message) {
            self.traced(now, party, Step::Faulty, &message);
            let fault = OsFault::new(500, format!("Capability '{}' {why}", self.table.name_of(from)));
            let in_hand = self.in_hand(from, during, message.metadata.causation.as_ref());
            self.fault(now, from, in_hand, &fault);
            return;
        }
        match message.kind {
            OsKind::Event => self.fan_out(now, party, message),
            OsKind::Command | OsKind::Query => {
                self.counters.internal_requests += 1;
                self.actor_request(now, from, wait, message);
            }
            OsKind::Reply | OsKind::Error => self.outcome(now, from, during, message),
        }
    }

    /// What is wrong with it, if anything: what it did not declare, a lineage it does not have.
    fn check_said(
        &self,
        from: CapabilityId,
        during: Option<DeliveryId>,
        message: &OsMessage,
    ) -> Result<(), String> {
        let (kind, ty) = (message.kind, &message.ty);
        let causation = message.metadata.causation.as_ref();
        if kind == OsKind::Reply && causation.is_none() {
            return Err(format!("emitted a reply {ty} without metadata.causation"));
        }
        let in_hand = during.is_some_and(|delivery| self.deliveries.contains_key(&delivery));
        if in_hand && causation.is_none() && kind != OsKind::Error {
            return Err(format!("emitted {kind} {ty} without metadata.causation"));
        }
        let declared = self.table.get(from).and_then(|one| one.manifest.outbound.as_ref());
        let Some(outbound) = declared.filter(|_| kind != OsKind::Error) else { return Ok(()) };
        match outbound.iter().find(|branch| branch.kind == kind && branch.ty == *ty) {
            None => Err(format!("emitted {kind} {ty}, which its manifest does not declare")),
            Some(branch) => branch
                .data
                .check(&message.data)
                .map_err(|details| format!("emitted {kind} {ty} that does not fit its schema: {details}")),
        }
    }

    fn actor_request(&mut self, now: Now, from: CapabilityId, wait: bool, message: OsMessage) {
        let requester = Requester::Actor { capability: from, wait };
        let asked = self.table.get(from).map_or(0, |one| one.asked);
        if asked >= self.limits.actor_requests_max {
            self.counters.overloads += 1;
            let fault = OsFault::new(503, "Too many requests of this capability wait for their outcome");
            self.refuse(now, requester, &message, &fault);
        } else {
            self.request(now, requester, message);
        }
    }

    /// Joined by causation; the generation tells two uses of one id apart.
    fn outcome(&mut self, now: Now, from: CapabilityId, during: Option<DeliveryId>, message: OsMessage) {
        let party = Party::Capability(self.table.name_of(from));
        let Some(cause) = message.metadata.causation.clone() else {
            // An error about nothing in particular: for the record only.
            self.traced(now, party, Step::Orphan, &message);
            return;
        };
        let found = self.pending.find(from, during, &cause);
        let is_late = found
            .is_none_or(|(_, delivery)| Some(delivery) != during && self.take_late(from, during, &cause));
        let Some(pending) =
            found.filter(|_| !is_late).and_then(|(_, delivery)| self.forget(&cause, delivery))
        else {
            self.orphan(now, party, &message);
            return;
        };
        match message.kind {
            OsKind::Error => self.counters.errors += 1,
            _ => self.counters.replies += 1,
        }
        self.traced(now, party, Step::Answered { to: self.party(pending.requester) }, &message);
        self.give(now, pending.requester, with_correlation(message, pending.correlation));
    }

    /// Whether this outcome is of an earlier use of the id: of the delivery it names, or of one this actor still has.
    fn take_late(&mut self, from: CapabilityId, during: Option<DeliveryId>, cause: &OsId) -> bool {
        // It names what it answers, and that is another use.
        if during.is_some_and(|named| self.deliveries.get(&named).is_none_or(|one| one.id == *cause)) {
            return true;
        }
        if !self.late.contains_key(&(from, cause.clone())) {
            return false;
        }
        // The oldest: a mailbox is worked off in order.
        let mut had =
            self.deliveries.values_mut().filter(|one| one.to == from && one.id == *cause && one.is_late);
        if let Some(one) = had.next() {
            one.is_late = false;
        }
        self.forget_late(from, cause);
        true
    }

    /// One of them is accounted for.
    pub(crate) fn forget_late(&mut self, from: CapabilityId, id: &OsId) {
        let key = (from, id.clone());
        if let Some(count) = self.late.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.late.remove(&key);
            }
        }
    }

    /// Takes a request off the books. Whatever comes for it later is an orphan.
    pub(crate) fn forget(&mut self, id: &OsId, delivery: DeliveryId) -> Option<Pending> {
        let pending = self.pending.take(id, delivery)?;
        if let Some(deadline) = pending.deadline {
            self.timeouts.cancel(deadline);
        }
        if let Requester::Actor { capability, .. } = pending.requester
            && let Some(asker) = self.table.get_mut(capability)
        {
            asker.asked = asker.asked.saturating_sub(1);
            self.retire_if_empty(capability);
        }
        self.retire_if_empty(pending.to);
        Some(pending)
    }

    /// The actor may still have it in its hands although somebody else has answered.
    pub(crate) fn mark_late(&mut self, delivery: DeliveryId) {
        if let Some(one) = self.deliveries.get_mut(&delivery).filter(|one| !one.is_late) {
            one.is_late = true;
            *self.late.entry((one.to, one.id.clone())).or_default() += 1;
        }
    }

    /// Hands an outcome to whoever asked.
    pub(crate) fn give(&mut self, now: Now, requester: Requester, message: OsMessage) {
        match requester {
            Requester::Client(conn) => {
                if self.conns.contains_key(&conn) {
                    self.microtasks.push_back(Microtask::Answer { conn, message });
                    self.microtasks.push_back(Microtask::Release { conn });
                }
            }
            Requester::Gone => {}
            Requester::Actor { capability, wait: true } => {
                self.effects.push(Effect::Outcome { to: capability, message: Arc::new(message) });
            }
            Requester::Actor { capability, wait: false } => self.give_declared(capability, message),
            Requester::Timer(timer) => self.timer_answered(now, timer, &message),
        }
    }

    /// Into the mailbox if the actor's inbound has a branch for it.
    fn give_declared(&mut self, to: CapabilityId, message: OsMessage) {
        let wants = self.table.get(to).is_some_and(|one| {
            one.branch(message.kind, &message.ty).is_some()
                && one.unhealthy.is_none()
                && one.waiting < self.limits.mailbox_max
        });
        if wants {
            let delivery = self.next_delivery();
            self.post(to, delivery, Arc::new(message), None, None);
        }
    }

    /// Answers a pending request with an error of the loop's own.
    pub(crate) fn fail(&mut self, now: Now, id: &OsId, delivery: DeliveryId, fault: &OsFault) -> bool {
        let Some(pending) = self.forget(id, delivery) else { return false };
        self.mark_late(delivery);
        self.counters.refusals += 1;
        let asked = Asked { id: id.clone(), ty: pending.ty, correlation: pending.correlation };
        let message = make::error(&mut self.ids, now, &asked, fault);
        self.traced(now, Party::Loop, Step::Answered { to: self.party(pending.requester) }, &message);
        self.give(now, pending.requester, message);
        true
    }

    /// `Sys.RequestTimeout`: nothing happens unless the request is still waiting.
    pub(crate) fn time_out(&mut self, now: Now, id: &OsId, delivery: DeliveryId) -> bool {
        let ty = [true, false].into_iter().find_map(|client| {
            self.pending.get(id, client).filter(|one| one.delivery == delivery).map(|one| one.ty.clone())
        });
        let Some(ty) = ty else { return false };
        self.counters.timeouts += 1;
        self.fail(now, id, delivery, &OsFault::new(504, "Request timed out"));
        self.note(now, Note::RequestTimedOut { ty, id: id.clone() });
        true
    }

    /// The delivery an actor is blamed for, and the request in it.
    fn in_hand(
        &self,
        from: CapabilityId,
        during: Option<DeliveryId>,
        cause: Option<&OsId>,
    ) -> Option<(OsId, DeliveryId)> {
        let named =
            during.and_then(|delivery| self.deliveries.get(&delivery).map(|one| (one.id.clone(), delivery)));
        named.or_else(|| {
            let cause = cause?;
            self.pending.find(from, during, cause).map(|(_, delivery)| (cause.clone(), delivery))
        })
    }

    /// `Sys.ActorFault`, and an error for the request in hand.
    pub(crate) fn fault(
        &mut self,
        now: Now,
        from: CapabilityId,
        in_hand: Option<(OsId, DeliveryId)>,
        fault: &OsFault,
    ) {
        self.counters.actor_faults += 1;
        let request = in_hand.as_ref().map(|(id, _)| id.clone());
        if let Some((id, delivery)) = in_hand {
            self.fail(now, &id, delivery, fault);
        }
        let capability = self.table.name_of(from).to_string();
        self.note(now, Note::ActorFault { capability, message: fault.message.clone(), request });
    }

    pub(crate) fn bad_emit(
        &mut self,
        now: Now,
        from: CapabilityId,
        during: Option<DeliveryId>,
        fault: &OsFault,
    ) {
        let in_hand = self.in_hand(from, during, None);
        self.fault(now, from, in_hand, fault);
    }
}

/// «Should be propagated»: what the actor forgot, the loop adds.
fn with_correlation(mut message: OsMessage, correlation: Option<OsId>) -> OsMessage {
    if message.metadata.correlation.is_none() {
        message.metadata.correlation = correlation;
    }
    message
}
