//! A mailbox from the actor's side: what it has to do, and how it says what came of it.
//!
//! The engine counts what is in a mailbox and answers 503 when it is full, so the queue here needs no bound of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use millrace_model::{OsFault, OsMessage};
use millrace_router::{By, CapabilityId, DeliveryId, Input, Takes};
use tokio::sync::Notify;

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
}

/// What the loop puts in and the actor takes out.
#[derive(Default)]
pub(crate) struct Mailbox {
    messages: RefCell<VecDeque<Delivery>>,
    /// Outcomes of requests the actor made itself: they do not wait behind what it has not begun.
    outcomes: RefCell<VecDeque<Arc<OsMessage>>>,
    closed: Cell<bool>,
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

    pub fn try_next(&self) -> Option<Delivery> {
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

    /// It has finished with a delivery. `Err`: the requester gets that error unless it was answered before.
    pub fn done(&self, delivery: DeliveryId, result: Result<(), OsFault>) {
        self.ear.tell(Input::Done { from: self.capability, delivery, result });
    }

    /// What it had begun fails with `fault`; what it had not begun stays in the mailbox.
    pub fn crashed(&self, begun: Vec<DeliveryId>, fault: OsFault) {
        self.ear.tell(Input::Crashed { capability: self.capability, begun, fault });
    }

    /// It will not be back by itself: everything in its mailbox and everything new is answered with 503. What the
    /// mailbox held is taken out here too, because the engine has answered for it.
    pub fn unhealthy(&self, reason: String) {
        self.mailbox.messages.borrow_mut().clear();
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
