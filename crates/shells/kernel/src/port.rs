//! A mailbox from the actor's side: what it has to do, and how it says what came of it.
//!
//! The engine counts what is in a mailbox and answers 503 when it is full, so the queue here needs no bound of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use millrace_model::{OsFault, OsKind, OsMessage};
use millrace_router::{By, CapabilityId, DeliveryId, Input, Takes};
use tokio::sync::Notify;

use crate::builtin::BUS_MESSAGE;
use crate::ear::Ear;
use crate::inbox::LoopLink;

/// One message out of a mailbox.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// To be named when it is done.
    pub id: DeliveryId,
    pub message: Arc<OsMessage>,
    /// For a request of a client: who that is.
    pub by: By,
    /// An event of a durable timer: it is lost with this process once [`Port::done`] was said.
    pub owed: bool,
    /// A child ended and may have been at this event: it is given alone. How many lives have ended while it was the only
    /// event in hand.
    pub(crate) suspect: Option<u8>,
}

impl Delivery {
    /// An event that nobody keeps: lost with whoever has it.
    fn is_plain_event(&self) -> bool {
        self.message.kind == OsKind::Event && !self.owed && self.message.ty.as_str() != BUS_MESSAGE
    }
}

/// What the loop puts in and the actor takes out.
#[derive(Default)]
pub(crate) struct Mailbox {
    messages: RefCell<VecDeque<Delivery>>,
    /// Outcomes of requests the actor made itself: they do not wait behind what it has not begun.
    outcomes: RefCell<VecDeque<Arc<OsMessage>>>,
    closed: Cell<bool>,
    /// Another actor is still at what came before: see [`Mailbox::hold`].
    held: Cell<bool>,
    opened: Notify,
    /// The capability is to go, and how long its actor has to finish; 0 = as long as it takes.
    leaving: Cell<Option<u64>>,
    leaves: Notify,
    arrived: Notify,
    outcome_arrived: Notify,
}

impl Mailbox {
    pub(crate) fn post(&self, delivery: Delivery) {
        self.messages.borrow_mut().push_back(delivery);
        self.arrived.notify_one();
    }

    pub(crate) fn outcome(&self, message: Arc<OsMessage>) {
        self.outcomes.borrow_mut().push_back(message);
        self.outcome_arrived.notify_one();
    }

    /// The actor gets nothing out of it before [`Mailbox::open`]: its predecessor has not finished.
    pub(crate) fn hold(&self) {
        self.held.set(true);
    }

    pub(crate) fn open(&self) {
        self.held.set(false);
        self.arrived.notify_one();
        self.opened.notify_waiters();
    }

    /// Empties it. Whoever waits for an answer gets one from the engine; events that nobody keeps are lost, and told.
    pub(crate) fn clear(&self, ear: &Ear, capability: CapabilityId, name: &Arc<str>, reason: &str) {
        let cleared = std::mem::take(&mut *self.messages.borrow_mut());
        for lost in cleared.into_iter().filter(Delivery::is_plain_event) {
            let (subscriber, message, reason) = (name.clone(), lost.message, reason.to_owned());
            ear.tell(Input::EventLost { capability, delivery: lost.id, subscriber, message, reason });
        }
    }

    /// The capability takes nothing new: its actor finishes what it has.
    pub(crate) fn leave(&self, within_ms: u64) {
        self.leaving.set(Some(within_ms));
        self.leaves.notify_one();
    }

    pub(crate) async fn is_open(&self) {
        while self.held.get() {
            self.opened.notified().await;
        }
    }

    /// Nothing more will come: the actor may end once it is empty.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.arrived.notify_one();
        self.outcome_arrived.notify_one();
    }
}

/// The actor's end. Lives on the loop's thread.
pub struct Port {
    capability: CapabilityId,
    name: Arc<str>,
    mailbox: Rc<Mailbox>,
    ear: Ear,
    link: LoopLink,
}

impl Port {
    pub(crate) fn new(
        capability: CapabilityId,
        name: Arc<str>,
        mailbox: Rc<Mailbox>,
        ear: Ear,
        link: LoopLink,
    ) -> Port {
        Port { capability, name, mailbox, ear, link }
    }

    pub fn capability(&self) -> CapabilityId {
        self.capability
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// For handing to other threads.
    pub fn link(&self) -> &LoopLink {
        &self.link
    }

    /// The next message, in order; it has then been begun. `None`: the capability was retired and the actor may end.
    pub async fn next(&self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.try_next() {
                return Some(delivery);
            }
            if self.mailbox.closed.get() {
                return None;
            }
            self.mailbox.arrived.notified().await;
        }
    }

    /// Waits until the actor before this one, which a reload replaced, has finished. False if this one is not to begin
    /// at all. Not beside [`Port::next`].
    pub(crate) async fn is_its_turn(&self) -> bool {
        while self.mailbox.held.get() {
            if self.mailbox.closed.get() {
                return false;
            }
            self.mailbox.arrived.notified().await;
        }
        true
    }

    pub fn try_next(&self) -> Option<Delivery> {
        if self.mailbox.held.get() {
            return None;
        }
        self.mailbox.messages.borrow_mut().pop_front()
    }

    /// The next outcome of a request this actor emitted with `wait`; its causation tells which one. `None` once the
    /// capability was retired.
    pub async fn next_outcome(&self) -> Option<Arc<OsMessage>> {
        loop {
            if let Some(outcome) = self.try_next_outcome() {
                return Some(outcome);
            }
            if self.mailbox.closed.get() {
                return None;
            }
            self.mailbox.outcome_arrived.notified().await;
        }
    }

    /// Another outcome, if one waits.
    pub(crate) fn try_next_outcome(&self) -> Option<Arc<OsMessage>> {
        self.mailbox.outcomes.borrow_mut().pop_front()
    }

    pub(crate) fn outcomes_waiting(&self) -> usize {
        self.mailbox.outcomes.borrow().len()
    }

    /// Whether a message waits.
    pub(crate) fn has_next(&self) -> bool {
        !self.mailbox.held.get() && !self.mailbox.messages.borrow().is_empty()
    }

    /// Waits until the capability is to go. Returns how long its actor has to finish; 0 = as long as it takes.
    pub(crate) async fn leaving(&self) -> u64 {
        loop {
            if let Some(within_ms) = self.mailbox.leaving.get() {
                return within_ms;
            }
            self.mailbox.leaves.notified().await;
        }
    }

    /// Whether the engine has nothing more for a capability that is to go.
    pub(crate) async fn is_drained(&self) -> bool {
        let id = self.capability;
        !self.has_next() && self.link.look(move |router| router.is_drained(id)).await.unwrap_or(true)
    }

    /// Waits until the capability was retired. Not beside [`Port::next`]: each of them may be woken for the other.
    pub(crate) async fn retired(&self) {
        while !self.mailbox.closed.get() {
            self.mailbox.arrived.notified().await;
        }
    }

    /// Whether it is to end as soon as its mailbox is empty.
    pub(crate) async fn is_to_go(&self) -> bool {
        let id = self.capability;
        matches!(self.link.look(move |router| router.takes(id)).await, Ok(Takes::Never) | Err(_))
    }

    /// Says something. `during` is the delivery it follows from, if the actor can tell. With `wait` the outcome of a
    /// request comes by [`Port::next_outcome`]. Its causation must be a message this actor was given or has said, not
    /// longer ago than `lineage_max` messages, or none. Waits while the lanes are long.
    pub async fn emit(&self, during: Option<DeliveryId>, message: OsMessage, wait: bool) {
        self.ear.room().await;
        let input = Input::Emit { from: self.capability, during, message, wait, vouched: false };
        self.ear.tell(input);
    }

    /// The same without waiting: for the one terminal outcome of a delivery, which is bounded by the mailbox.
    pub fn answer(&self, during: DeliveryId, message: OsMessage) {
        let (from, during) = (self.capability, Some(during));
        self.ear.tell(Input::Emit { from, during, message, wait: false, vouched: false });
    }

    /// It said something that is no message, or not one it may say.
    pub fn bad_emit(&self, during: Option<DeliveryId>, fault: OsFault) {
        self.ear.tell(Input::BadEmit { from: self.capability, during, fault });
    }

    /// It was given an event and goes on: the place in the mailbox is free. [`Port::done`] follows.
    pub(crate) fn handed(&self, delivery: DeliveryId) {
        self.ear.tell(Input::Handed { from: self.capability, delivery });
    }

    /// It ends, and has not finished with this event that is owed.
    pub(crate) fn gives_back(&self, delivery: DeliveryId) {
        self.ear.tell(Input::GivenBack { from: self.capability, delivery });
    }

    /// It did not answer in time.
    pub(crate) fn gave_up(&self, delivery: DeliveryId) {
        self.ear.tell(Input::GaveUp { from: self.capability, delivery });
    }

    /// Before everything else in the mailbox, in this order: for the next life.
    pub(crate) fn put_back(&self, deliveries: Vec<Delivery>) {
        let mut messages = self.mailbox.messages.borrow_mut();
        for delivery in deliveries.into_iter().rev() {
            messages.push_front(delivery);
        }
    }

    /// It has finished with a delivery. `Err`: the requester gets that error unless it was answered before.
    pub fn done(&self, delivery: DeliveryId, result: Result<(), OsFault>) {
        self.ear.tell(Input::Done { from: self.capability, delivery, result });
    }

    /// What it had begun fails with `fault`; what it had not begun stays in the mailbox. `over` is the message that it was
    /// ended for, if that was given up before.
    pub fn crashed(&self, begun: Vec<DeliveryId>, over: Option<Arc<OsMessage>>, fault: OsFault) {
        self.ear.tell(Input::Crashed { capability: self.capability, begun, over, fault });
    }

    /// It may not have seen this event.
    pub(crate) fn event_lost(&self, lost: &Delivery, reason: &str) {
        let (capability, subscriber) = (self.capability, self.name.clone());
        let (delivery, message, reason) = (lost.id, lost.message.clone(), reason.to_owned());
        self.ear.tell(Input::EventLost { capability, delivery, subscriber, message, reason });
    }

    /// It will not be back by itself: everything in its mailbox and everything new is answered with 503. What the
    /// mailbox held is taken out here too, because the engine has answered for it.
    pub fn unhealthy(&self, reason: String) {
        self.mailbox.clear(&self.ear, self.capability, &self.name, &format!("it is unhealthy: {reason}"));
        self.ear.tell(Input::Unhealthy { capability: self.capability, reason });
    }

    pub fn healthy(&self) {
        self.ear.tell(Input::Healthy { capability: self.capability });
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("name", &self.name).finish_non_exhaustive()
    }
}
