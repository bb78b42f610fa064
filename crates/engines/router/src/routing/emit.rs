//! Messages that actors emit: queued in the user lane, checked when their turn comes.

use std::collections::BTreeSet;

use millrace_model::{JsonText, Now, OsFault, OsId, OsKind, OsMessage};

use crate::interface::input::{CapabilityId, DeliveryId};
use crate::reports::messages::{self, RequestRef};
use crate::reports::trace::{Party, TraceStep};
use crate::router::{DeliveryEntry, Router};
use crate::routing::emission_error::EmissionError;
use crate::routing::events::EventAuthor;
use crate::routing::lanes::{Answers, Emitted, InProgress, Task};
use crate::routing::lineage::Correlation;
use crate::routing::pending::OutcomeTo;

/// The fields of [`crate::Input::Emit`].
pub(crate) struct Emission {
    pub(crate) from: CapabilityId,
    pub(crate) during: Option<DeliveryId>,
    pub(crate) message: OsMessage,
    pub(crate) wait: bool,
    pub(crate) trusted: bool,
}

impl Router {
    /// Queues an actor's message in the user lane. If the lane is full, awaited outcomes are still queued, because the
    /// number of requests bounds them; requests are refused and events dropped.
    pub(crate) fn emit(&mut self, now: Now, emission: Emission) {
        let Emission { from, during, mut message, wait, trusted } = emission;
        let follows = trusted || self.follows(from, during, &mut message);
        let answers = self.answers(from, during, &message);
        let cause = message.metadata.causation.as_ref();
        let is_awaited = || cause.is_some_and(|cause| self.pending.answered(from, answers, cause).is_some());
        if self.has_room() || (message.kind.is_outcome() && is_awaited()) {
            if follows && !message.kind.is_outcome() {
                let metadata = &message.metadata;
                self.remember(from, metadata.id.clone(), metadata.correlation.clone());
            }
            let (in_progress, at) = (self.in_progress(from, during), now.mono);
            self.lanes.push_user(Task::Actor(Emitted {
                from,
                in_progress,
                message,
                answers,
                follows,
                wait,
                at,
            }));
            return;
        }
        self.counters.overloads += 1;
        if message.kind.is_request() {
            let fault = OsFault::new(503, "Too many messages wait: send more when some are answered");
            self.refuse(now, OutcomeTo::Actor { capability: from, wait }, &message, &fault);
        } else if message.kind == OsKind::Event {
            let reason = "too many messages wait for their turn";
            for listener in self.table.listeners(&message.ty).to_vec() {
                self.drop_event(now, self.table.name_of(listener), Some(from), &message, reason.to_owned());
            }
        }
    }

    /// Whether the cause that a message names is true: the actor was given that message, or emitted it. The message
    /// then gets the correlation of its cause, whatever the actor set. A message without a cause begins an undertaking;
    /// `check_emitted` decides in its turn whether it may. Outcomes are matched to requests by their cause, so theirs
    /// cannot be false.
    fn follows(&mut self, from: CapabilityId, during: Option<DeliveryId>, message: &mut OsMessage) -> bool {
        if message.kind.is_outcome() {
            return true;
        }
        let Some(cause) = message.metadata.causation.clone() else { return true };
        let Some(correlation) = self.cause(from, during, &cause) else { return false };
        if correlation.is_some() {
            message.metadata.correlation = correlation;
        }
        true
    }

    /// Finds the correlation of a cause: the delivery in progress, a finished or emitted message, or one still in the
    /// mailbox. In which order an actor handles its messages is its own business.
    fn cause(&mut self, from: CapabilityId, during: Option<DeliveryId>, id: &OsId) -> Option<Correlation> {
        let in_progress = during.and_then(|delivery| self.deliveries.get(&(from, delivery)));
        if let Some(one) = in_progress.filter(|one| one.id == *id) {
            return Some(one.correlation.clone());
        }
        if let Some(found) = self.table.get_mut(from)?.had.find(id) {
            return Some(found);
        }
        self.mailbox(from).find(|(_, one)| one.id == *id).map(|(_, one)| one.correlation.clone())
    }

    /// Remembers a message that the capability was given or has emitted, so that it may name it as a cause.
    pub(crate) fn remember(&mut self, capability: CapabilityId, id: OsId, correlation: Correlation) {
        if let Some(one) = self.table.get_mut(capability) {
            one.had.remember(id, correlation, self.limits.lineage_max);
        }
    }

    /// The deliveries that a capability has not finished with, the oldest first.
    pub(crate) fn mailbox(&self, of: CapabilityId) -> impl Iterator<Item = (DeliveryId, &DeliveryEntry)> {
        let all = (of, DeliveryId(0))..=(of, DeliveryId(u64::MAX));
        self.deliveries.range(all).map(|((_, delivery), one)| (*delivery, one))
    }

    /// Which delivery an outcome answers. If the actor is working on another message, the oldest unfinished delivery
    /// with that id counts, else an earlier one.
    fn answers(&self, from: CapabilityId, during: Option<DeliveryId>, message: &OsMessage) -> Answers {
        let given_by_now = Answers::UpTo(DeliveryId(self.next_delivery));
        let Some(cause) = message.metadata.causation.as_ref().filter(|_| message.kind.is_outcome()) else {
            return given_by_now;
        };
        match during.map(|delivery| (delivery, self.deliveries.get(&(from, delivery)))) {
            // The actor has finished this delivery, or is answering it now.
            Some((delivery, None)) => Answers::Exactly(delivery),
            Some((delivery, Some(one))) if one.id == *cause => Answers::Exactly(delivery),
            _ => {
                let mut has = self.mailbox(from).filter(|(_, one)| one.id == *cause);
                has.next().map_or(given_by_now, |(delivery, _)| Answers::Exactly(delivery))
            }
        }
    }

    pub(crate) fn route_actor(&mut self, now: Now, said: Emitted) {
        let Emitted { from, in_progress, message, answers, follows, wait, at } = said;
        let Some(capability) = self.table.get(from) else {
            // The capability is gone and its messages go nowhere; but a requester must not wait for ever for an
            // outcome.
            if message.kind.is_request() {
                let fault = OsFault::new(503, "The capability that asks has been removed");
                self.refuse(now, OutcomeTo::Actor { capability: from, wait }, &message, &fault);
            }
            return;
        };
        let party = Party::Capability(capability.name().clone());
        let realm = in_progress.as_ref().and_then(|in_progress| in_progress.realm.clone());
        if let Err(why) = self.check_emitted(from, in_progress.is_some(), follows, &message) {
            self.traced(now, party, TraceStep::Faulty, realm, &message);
            let fault = OsFault::new(500, format!("Capability '{}' {why}", self.table.name_of(from)));
            let blamed = in_progress.or_else(|| self.answered_by(from, answers, &message));
            self.fault(now, from, blamed, &fault);
            if message.kind.is_request() {
                // The requester must not wait for ever for an outcome.
                let refusal = messages::error(&mut self.ids, now, &RequestRef::of(&message), &fault);
                self.give(OutcomeTo::Actor { capability: from, wait }, refusal);
            }
            return;
        }
        match message.kind {
            OsKind::Event => {
                self.fan_out(now, (EventAuthor::Capability(from), realm), &BTreeSet::new(), message);
            }
            OsKind::Command | OsKind::Query => {
                self.counters.internal_requests += 1;
                self.actor_request(now, from, wait, at, realm, message);
            }
            OsKind::Reply | OsKind::Error => self.outcome(now, from, answers, message),
        }
    }

    /// Checks that the manifest declares the message, that it fits its schema, and that its lineage is true.
    fn check_emitted(
        &self,
        from: CapabilityId,
        in_progress: bool,
        follows: bool,
        message: &OsMessage,
    ) -> Result<(), EmissionError> {
        let (kind, ty) = (message.kind, &message.ty);
        let causation = message.metadata.causation.as_ref();
        if kind == OsKind::Reply && causation.is_none() {
            return Err(EmissionError::ReplyWithoutCause { ty: ty.clone() });
        }
        if in_progress && causation.is_none() && kind != OsKind::Error {
            return Err(EmissionError::WithoutCause { kind, ty: ty.clone() });
        }
        if let Some(cause) = causation.filter(|_| !follows) {
            return Err(EmissionError::FalseCause { kind, ty: ty.clone(), cause: cause.clone() });
        }
        if kind == OsKind::Error && !is_fault(&message.data) {
            return Err(EmissionError::NoFault { ty: ty.clone() });
        }
        let declared = self.table.get(from).and_then(|one| one.manifest.outbound.as_ref());
        let Some(outbound) = declared.filter(|_| kind != OsKind::Error) else { return Ok(()) };
        match outbound.iter().find(|branch| branch.kind == kind && branch.ty == *ty) {
            None => Err(EmissionError::Undeclared { kind, ty: ty.clone() }),
            Some(branch) => branch.data.check(&message.data).map_err(|mismatch| EmissionError::Mismatch {
                kind,
                ty: ty.clone(),
                mismatch,
            }),
        }
    }

    pub(crate) fn in_progress(&self, from: CapabilityId, during: Option<DeliveryId>) -> Option<InProgress> {
        let delivery = during?;
        let one = self.deliveries.get(&(from, delivery))?;
        let (id, correlation) = (one.id.clone(), one.correlation.clone());
        Some(InProgress { id, correlation, delivery, is_sys: one.is_sys, realm: one.realm.clone() })
    }

    /// The pending request that a message would have answered.
    fn answered_by(&self, from: CapabilityId, answers: Answers, message: &OsMessage) -> Option<InProgress> {
        let id = message.metadata.causation.clone()?;
        let delivery = self.pending.answered(from, answers, &id)?;
        let correlation = message.metadata.correlation.clone();
        Some(InProgress { id, correlation, delivery, is_sys: false, realm: None })
    }

    pub(crate) fn bad_emit(
        &mut self,
        now: Now,
        from: CapabilityId,
        during: Option<DeliveryId>,
        fault: &OsFault,
    ) {
        self.fault(now, from, self.in_progress(from, during), fault);
    }
}

fn is_fault(data: &JsonText) -> bool {
    #[derive(serde::Deserialize)]
    struct FaultShape {
        code: u16,
        #[serde(rename = "message")]
        _message: String,
    }
    serde_json::from_str::<FaultShape>(data.as_str()).is_ok_and(|fault| (400..=599).contains(&fault.code))
}
