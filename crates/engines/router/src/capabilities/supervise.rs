//! The life cycle of capabilities: finishing deliveries, failing, recovering, leaving.

use millrace_model::{Now, OsFault, OsMessage, OsType};

use crate::interface::effect::{Effect, Settled};
use crate::interface::input::{CapabilityId, DeliveryId};
use crate::interface::note::{Audience, Cause, Note};
use crate::router::Router;
use crate::routing::route::{BUS_MESSAGE, TIMED_OUT};

impl Router {
    /// The actor has finished with a delivery: its slot in the mailbox is free.
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

    /// The actor goes on to its next message before it has finished with this event.
    pub(crate) fn handed(&mut self, from: CapabilityId, delivery: DeliveryId) {
        let Some(one) = self.deliveries.get_mut(&(from, delivery)).filter(|one| !one.handed) else { return };
        one.handed = true;
        self.free_place(from);
    }

    pub(crate) fn given_back(&mut self, now: Now, from: CapabilityId, delivery: DeliveryId) {
        self.finish(now, from, delivery, None, Settled::Unseen);
    }

    /// The actor was too slow. If the engine's own timeout was earlier, the requester has its error already.
    pub(crate) fn gave_up(&mut self, now: Now, from: CapabilityId, delivery: DeliveryId) {
        let Some(one) = self.deliveries.get(&(from, delivery)) else { return };
        let (id, is_bus) = (one.id.clone(), one.receipt.is_some());
        let cause = Cause { id: id.clone(), correlation: one.correlation.clone() };
        if !self.time_out(now, &id, delivery)
            && is_bus
            && let Ok(ty) = OsType::new(BUS_MESSAGE)
        {
            self.counters.timeouts += 1;
            self.note(Note::RequestTimedOut { ty, id }, Audience::SubscribersBut(from), Some(cause));
        }
        let fault = OsFault::new(504, TIMED_OUT);
        self.finish(now, from, delivery, Some(&fault), Settled::Failed(fault.clone()));
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
        let (timer, handed) = (one.timer.clone(), one.handed);
        if let Some(fault) = fault {
            match fault.code {
                500 => self.fault(now, from, self.in_progress(from, Some(delivery)), fault),
                _ => {
                    self.fail(now, &id, delivery, fault);
                }
            }
        }
        self.deliveries.remove(&(from, delivery));
        match timer {
            Some(event) if settled == Settled::Unseen => self.timer_event_unseen(now, &event, from),
            Some(event) => match fault {
                Some(fault) => self.timer_event_failed(now, &event, from, fault),
                None => self.timer_event_finished(event.timer),
            },
            None => {}
        }
        if let Some(receipt) = receipt {
            self.effects.push(Effect::Settle { receipt, settled });
        }
        self.remember(from, id, correlation);
        match handed {
            true => self.retire_if_empty(from),
            false => self.free_place(from),
        }
    }

    fn free_place(&mut self, of: CapabilityId) {
        if let Some(capability) = self.table.get_mut(of) {
            capability.waiting = capability.waiting.saturating_sub(1);
        }
        self.place_is_free(of);
        self.retire_if_empty(of);
    }

    /// Ends the deliveries that the crashed actor had begun; the rest waits for its successor.
    pub(crate) fn crashed(
        &mut self,
        now: Now,
        id: CapabilityId,
        begun: &[DeliveryId],
        over: Option<&OsMessage>,
        fault: &OsFault,
    ) {
        let capability = self.table.name_of(id).to_string();
        let in_progress = begun.first().and_then(|delivery| self.deliveries.get(&(id, *delivery)));
        let cause = in_progress
            .map(|one| Cause { id: one.id.clone(), correlation: one.correlation.clone() })
            .or_else(|| over.map(Cause::of));
        for delivery in begun {
            self.done(now, id, *delivery, Err(fault.clone()));
        }
        let note = Note::CapabilityDown { capability, reason: fault.message.clone() };
        self.note(note, Audience::SubscribersBut(id), cause);
    }

    pub(crate) fn unhealthy(&mut self, now: Now, id: CapabilityId, reason: String) {
        let Some(capability) = self.table.get_mut(id) else { return };
        capability.unhealthy = Some(reason.clone());
        let name = capability.name().to_string();
        let fault = OsFault::new(503, format!("Capability '{name}' is unhealthy: {reason}"));
        self.give_up_places(now, id, &fault.message);
        let mailbox: Vec<DeliveryId> = self.mailbox(id).map(|(delivery, _)| delivery).collect();
        for delivery in mailbox {
            self.finish(now, id, delivery, Some(&fault), Settled::Unseen);
        }
        // Requests whose delivery the actor has finished without answering them will not be answered either.
        let unanswered: Vec<_> = self
            .pending
            .all()
            .filter(|(_, pending)| pending.to == id)
            .map(|(request, pending)| (request.clone(), pending.delivery))
            .collect();
        for (request, delivery) in unanswered {
            self.fail(now, &request, delivery, &fault);
        }
        self.note(Note::CapabilityDown { capability: name, reason }, Audience::SubscribersBut(id), None);
    }

    pub(crate) fn healthy(&mut self, id: CapabilityId) {
        if let Some(capability) = self.table.get_mut(id) {
            capability.unhealthy = None;
            let capability = capability.name().to_string();
            self.note(Note::CapabilityUp { capability }, Audience::Subscribers, None);
        }
    }

    /// Whether a leaving capability has been handed all its messages, waits for no outcome and owes none. The actor may
    /// still be working on events that it was handed.
    pub fn is_drained(&self, id: CapabilityId) -> bool {
        let is_free = |one: &crate::capabilities::table::CapabilityEntry| {
            one.waiting + one.events.len() + one.asked + one.owes == 0
        };
        self.table.get(id).is_none_or(|one| one.retiring && is_free(one))
    }

    /// Removes a leaving capability once it has finished everything and nobody waits for it.
    pub(crate) fn retire_if_empty(&mut self, id: CapabilityId) {
        let is_there = self.table.get(id).is_some();
        if is_there && self.is_drained(id) && self.mailbox(id).next().is_none() {
            self.table.forget(id);
            self.timers.held.remove(&id);
            self.effects.push(Effect::Retired { capability: id });
        }
    }
}
