//! A mailbox as the actor sees it: the messages to handle, and the functions that report their results to the loop.
//!
//! The engine counts the messages in a mailbox and answers 503 when it is full, so the queue here needs no bound of its
//! own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use millrace_model::{OsFault, OsKind, OsMessage, Requester};
use millrace_router::{CapabilityId, DeliveryId, Input, Takes};
use tokio::sync::Notify;

use crate::builtin::BUS_MESSAGE;
use crate::kernel_thread::inbox::KernelSender;
use crate::kernel_thread::local_queue::LocalQueue;

/// A message taken out of a mailbox.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Identifies the delivery in [`Port::done`].
    pub id: DeliveryId,
    pub message: Arc<OsMessage>,
    /// The identity of the client, for a client's request.
    pub by: Requester,
    /// An event of a durable timer, whose row stays until [`Port::done`]. After that, an unfinished event is lost if
    /// this process ends.
    pub owed: bool,
    /// Set if a child process ended while it may have been handling this event: the event is now given to the child
    /// alone. The number counts the runs of the child that ended while this was the only event in hand.
    pub suspect: Option<u8>,
}

impl Delivery {
    /// An event that exists nowhere else: if the actor that has it ends, it is lost.
    fn is_plain_event(&self) -> bool {
        self.message.kind == OsKind::Event && !self.owed && !self.is_bus_event()
    }

    /// An event of the bus (`Bus.Message`): acknowledged when it is done, given back to its topic when it fails.
    pub fn is_bus_event(&self) -> bool {
        self.message.kind == OsKind::Event && self.message.ty.as_str() == BUS_MESSAGE
    }
}

/// The queues between the loop and an actor.
#[derive(Default)]
pub(crate) struct Mailbox {
    messages: RefCell<VecDeque<Delivery>>,
    /// Outcomes of requests that the actor itself made. A queue of their own, so that they do not wait behind messages
    /// that the actor has not begun.
    outcomes: RefCell<VecDeque<Arc<OsMessage>>>,
    closed: Cell<bool>,
    /// The process that works for the actor, if there is one.
    pub(crate) process: Cell<Option<u32>>,
    /// How often the actor has begun again after it failed.
    pub(crate) restarts: Cell<u64>,
    /// The previous actor of this capability has not finished yet: see [`Mailbox::hold`].
    held: Cell<bool>,
    opened: Notify,
    /// Set when the capability is to be removed: how long its actor has to finish, in ms; 0 = no limit.
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

    /// Gives the actor nothing before [`Mailbox::open`], because its predecessor has not finished.
    pub(crate) fn hold(&self) {
        self.held.set(true);
    }

    pub(crate) fn open(&self) {
        self.held.set(false);
        self.arrived.notify_one();
        self.opened.notify_waiters();
    }

    /// Empties the mailbox. The engine answers the requests; events that exist nowhere else are lost and reported.
    pub(crate) fn clear(
        &self,
        local_queue: &LocalQueue,
        capability: CapabilityId,
        name: &Arc<str>,
        reason: &str,
    ) {
        let cleared = std::mem::take(&mut *self.messages.borrow_mut());
        for lost in cleared.into_iter().filter(Delivery::is_plain_event) {
            let (subscriber, message, reason) = (name.clone(), lost.message, reason.to_owned());
            local_queue.push(Input::EventLost { capability, delivery: lost.id, subscriber, message, reason });
        }
    }

    /// The capability takes nothing new: tells its actor to finish the messages it has.
    pub(crate) fn leave(&self, within_ms: u64) {
        self.leaving.set(Some(within_ms));
        self.leaves.notify_one();
    }

    pub(crate) async fn wait_until_open(&self) {
        while self.held.get() {
            self.opened.notified().await;
        }
    }

    /// No more messages will come: the actor may end once the mailbox is empty.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.arrived.notify_one();
        self.outcome_arrived.notify_one();
    }
}

/// The actor's end of its mailbox. Lives on the loop's thread.
pub struct Port {
    capability: CapabilityId,
    name: Arc<str>,
    mailbox: Rc<Mailbox>,
    local_queue: LocalQueue,
    kernel: KernelSender,
}

impl Port {
    pub(crate) fn new(
        capability: CapabilityId,
        name: Arc<str>,
        mailbox: Rc<Mailbox>,
        local_queue: LocalQueue,
        kernel: KernelSender,
    ) -> Port {
        Port { capability, name, mailbox, local_queue, kernel }
    }

    pub fn capability(&self) -> CapabilityId {
        self.capability
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A handle that may be sent to other threads.
    pub fn kernel(&self) -> &KernelSender {
        &self.kernel
    }

    /// Takes the next message, in order. `None`: the capability was retired and the actor may end.
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

    /// Waits until the previous actor of this capability, which a reload replaced, has finished. Returns false if this
    /// actor is not to begin at all. Must not run beside [`Port::next`], which waits for the same signal.
    pub async fn wait_for_predecessor(&self) -> bool {
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

    /// The next outcome of a request that this actor emitted with `wait`; its causation tells which one. `None` once
    /// the capability was retired.
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

    /// The next outcome if one waits.
    pub fn try_next_outcome(&self) -> Option<Arc<OsMessage>> {
        self.mailbox.outcomes.borrow_mut().pop_front()
    }

    /// Number of outcomes that wait for [`Port::next_outcome`].
    pub fn outcomes_waiting(&self) -> usize {
        self.mailbox.outcomes.borrow().len()
    }

    /// Whether a message waits.
    pub fn has_next(&self) -> bool {
        !self.mailbox.held.get() && !self.mailbox.messages.borrow().is_empty()
    }

    /// Waits until the capability is to be removed. Returns how long its actor has to finish, in ms; 0 = no limit.
    pub async fn leaving(&self) -> u64 {
        loop {
            if let Some(within_ms) = self.mailbox.leaving.get() {
                return within_ms;
            }
            self.mailbox.leaves.notified().await;
        }
    }

    /// Whether the engine has nothing more for a capability that is to be removed.
    pub async fn is_drained(&self) -> bool {
        let id = self.capability;
        !self.has_next() && self.kernel.with_router(move |router| router.is_drained(id)).await.unwrap_or(true)
    }

    /// Waits until the capability was retired. Must not run beside [`Port::next`]: a notification for one could wake
    /// the other.
    pub async fn retired(&self) {
        while !self.mailbox.closed.get() {
            self.mailbox.arrived.notified().await;
        }
    }

    /// Whether the capability is to end as soon as its mailbox is empty.
    pub async fn is_to_go(&self) -> bool {
        let id = self.capability;
        matches!(self.kernel.with_router(move |router| router.takes(id)).await, Ok(Takes::Never) | Err(_))
    }

    /// Emits a message. `during` is the delivery that caused it, if the actor knows. With `wait` the outcome of a
    /// request arrives by [`Port::next_outcome`]. The causation must be absent, or a message that this actor was given
    /// or has emitted, not longer ago than `lineage_max` messages. Waits while the lanes are long.
    pub async fn emit(&self, during: Option<DeliveryId>, message: OsMessage, wait: bool) {
        self.local_queue.room().await;
        let input = Input::Emit { from: self.capability, during, message, wait, trusted: false };
        self.local_queue.push(input);
    }

    /// Emits without waiting: for the terminal outcome of a delivery. There is one for each delivery, so the mailbox
    /// bounds them.
    pub fn answer(&self, during: DeliveryId, message: OsMessage) {
        let (from, during) = (self.capability, Some(during));
        self.local_queue.push(Input::Emit { from, during, message, wait: false, trusted: false });
    }

    /// Reports that the actor said something that is no message, or a message that it may not emit.
    pub fn bad_emit(&self, during: Option<DeliveryId>, fault: OsFault) {
        self.local_queue.push(Input::BadEmit { from: self.capability, during, fault });
    }

    /// The actor was given an event and goes on to the next message: frees the event's place in the mailbox.
    /// [`Port::done`] follows.
    pub fn handed(&self, delivery: DeliveryId) {
        self.local_queue.push(Input::Handed { from: self.capability, delivery });
    }

    /// The actor ends and has not finished with this event of a durable timer.
    pub fn gives_back(&self, delivery: DeliveryId) {
        self.local_queue.push(Input::GivenBack { from: self.capability, delivery });
    }

    /// The actor did not answer in time.
    pub fn gave_up(&self, delivery: DeliveryId) {
        self.local_queue.push(Input::GaveUp { from: self.capability, delivery });
    }

    /// Puts messages back before everything else in the mailbox, in this order: for the next run of a child.
    pub fn put_back(&self, deliveries: Vec<Delivery>) {
        let mut messages = self.mailbox.messages.borrow_mut();
        for delivery in deliveries.into_iter().rev() {
            messages.push_front(delivery);
        }
    }

    /// The actor has finished with a delivery. With `Err` the requester gets that error unless it was answered before.
    pub fn done(&self, delivery: DeliveryId, result: Result<(), OsFault>) {
        self.local_queue.push(Input::Done { from: self.capability, delivery, result });
    }

    /// The actor ended unexpectedly. The deliveries in `begun` fail with `fault`; messages that it had not begun stay
    /// in the mailbox. `over` is the message that the actor was killed for, if that delivery was given up before.
    pub fn crashed(&self, begun: Vec<DeliveryId>, over: Option<Arc<OsMessage>>, fault: OsFault) {
        self.local_queue.push(Input::Crashed { capability: self.capability, begun, over, fault });
    }

    /// The actor may not have seen this event.
    pub fn event_lost(&self, lost: &Delivery, reason: &str) {
        let (capability, subscriber) = (self.capability, self.name.clone());
        let (delivery, message, reason) = (lost.id, lost.message.clone(), reason.to_owned());
        self.local_queue.push(Input::EventLost { capability, delivery, subscriber, message, reason });
    }

    /// The actor will not be back by itself: everything in its mailbox and everything new is answered with 503. Empties
    /// the mailbox, because the engine answers for its messages.
    pub fn unhealthy(&self, reason: String) {
        self.mailbox.clear(
            &self.local_queue,
            self.capability,
            &self.name,
            &format!("it is unhealthy: {reason}"),
        );
        self.local_queue.push(Input::Unhealthy { capability: self.capability, reason });
    }

    /// Names the process that works for the actor now, for listings.
    pub fn set_process(&self, process: Option<u32>) {
        self.mailbox.process.set(process);
    }

    pub fn healthy(&self) {
        self.mailbox.restarts.set(self.mailbox.restarts.get() + 1);
        self.local_queue.push(Input::Healthy { capability: self.capability });
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("name", &self.name).finish_non_exhaustive()
    }
}
