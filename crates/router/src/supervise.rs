//! The life of capabilities: what they finish, how they fail, how they go.

use millrace_model::{Now, OsFault};

use crate::effect::{Effect, Settled};
use crate::input::{CapabilityId, DeliveryId};
use crate::note::{Audience, Note};
use crate::router::Router;

impl Router {
    /// A place in the mailbox is free.
    pub(crate) fn done(
        &mut self,
        now: Now,
        from: CapabilityId,
        delivery: DeliveryId,
        result: Result<(), OsFault>,
    ) {
        let fault = result.err();
        let settled = fault.clone().map_or(Settled::Processed, Settled::Failed);
        self.finish(now, from, delivery, fault.as_ref(), settled);
    }

    fn finish(
        &mut self,
        now: Now,
        from: CapabilityId,
        delivery: DeliveryId,
        fault: Option<&OsFault>,
        settled: Settled,
    ) {
        let Some(one) = self.deliveries.get(&(from, delivery)) else { return };
        let (id, receipt, correlation) = (one.id.clone(), one.receipt, one.correlation.clone());
        if let Some(fault) = fault {
            match fault.code {
                500 => self.fault(now, from, self.in_hand(from, Some(delivery)), fault),
                _ => {
                    self.fail(now, &id, delivery, fault);
                }
            }
        }
        if let Some(receipt) = receipt {
            self.effects.push(Effect::Settle { receipt, settled });
        }
        self.deliveries.remove(&(from, delivery));
        self.remember(from, id, correlation);
        if let Some(capability) = self.table.get_mut(from) {
            capability.waiting = capability.waiting.saturating_sub(1);
        }
        self.retire_if_empty(from);
    }

    /// What it had begun is lost with it; the rest waits for its successor.
    pub(crate) fn crashed(&mut self, now: Now, id: CapabilityId, begun: &[DeliveryId], fault: &OsFault) {
        let capability = self.table.name_of(id).to_string();
        for delivery in begun {
            self.done(now, id, *delivery, Err(fault.clone()));
        }
        self.note(
            Note::CapabilityDown { capability, reason: fault.message.clone() },
            Audience::SubscribersBut(id),
        );
    }

    pub(crate) fn unhealthy(&mut self, now: Now, id: CapabilityId, reason: String) {
        let Some(capability) = self.table.get_mut(id) else { return };
        capability.unhealthy = Some(reason.clone());
        let name = capability.name().to_string();
        let fault = OsFault::new(503, format!("Capability '{name}' is unhealthy: {reason}"));
        let mailbox: Vec<DeliveryId> = self.mailbox(id).map(|(delivery, _)| delivery).collect();
        for delivery in mailbox {
            self.finish(now, id, delivery, Some(&fault), Settled::Unseen);
        }
        // What it had finished with but not answered will not be answered either.
        let unanswered: Vec<_> = self
            .pending
            .all()
            .filter(|(_, pending)| pending.to == id)
            .map(|(request, pending)| (request.clone(), pending.delivery))
            .collect();
        for (request, delivery) in unanswered {
            self.fail(now, &request, delivery, &fault);
        }
        self.note(Note::CapabilityDown { capability: name, reason }, Audience::SubscribersBut(id));
    }

    pub(crate) fn healthy(&mut self, id: CapabilityId) {
        if let Some(capability) = self.table.get_mut(id) {
            capability.unhealthy = None;
            let capability = capability.name().to_string();
            self.note(Note::CapabilityUp { capability }, Audience::Subscribers);
        }
    }

    /// One that is to go goes when it has finished everything and nobody waits for it.
    pub(crate) fn retire_if_empty(&mut self, id: CapabilityId) {
        let is_free = |one: &crate::table::Capability| one.waiting + one.asked + one.owes == 0;
        if self.table.get(id).is_some_and(|one| one.retiring && is_free(one)) {
            self.table.forget(id);
            self.timers.held.remove(&id);
            self.effects.push(Effect::Retired { capability: id });
        }
    }
}
