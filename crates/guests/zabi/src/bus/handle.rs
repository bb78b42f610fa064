//! An open handle of `event/bus`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_reactor::zcl1::{FrameClass, FrameQueue, HEADER_BYTES, Header, QueueFull};
use millrace_reactor::{Readiness, ZabiError};
use parking_lot::Mutex;

use super::BusHandleLimits;
use super::messages::{BusRequest, BusRequestError, OP_EVENT, encode_event};
use super::port::{BusError, BusEvent, BusPort, BusReceipt, BusSubscriber, Offered, SubscriptionId};
use crate::budget::BudgetShare;
use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::requests::{ANSWER_BYTES_MAX, error_payload, header_fault, one_frame};
use crate::signals::ReadySignal;
use crate::wait::Waiter;

/// Together with header, trace and field lengths, a message of this size stays below [`ANSWER_BYTES_MAX`].
const MESSAGE_BYTES_MAX: usize = 160;

#[derive(Debug)]
pub(crate) struct BusHandle {
    bus: Arc<dyn BusPort>,
    inbox: Arc<BusInbox>,
    waiter: Waiter,
    subscriptions_max: usize,
}

/// Receives the events of all subscriptions of a handle, from any thread.
#[derive(Debug)]
struct BusInbox {
    state: Mutex<BusInboxState>,
    signal: ReadySignal,
}

/// Replies and events leave in the order in which they came: a guest that receives its own event reads the EVENT before
/// the reply to its PUBLISH, as with the reference.
#[derive(Debug)]
struct BusInboxState {
    output: FrameQueue,
    /// The bytes of the events in `output`, and of the topics of the subscriptions.
    share: BudgetShare,
    topic_bytes: usize,
    /// The receipts of the frames in `output`, one entry per frame, in their order.
    receipts: VecDeque<Option<Arc<dyn BusReceipt>>>,
    /// The subscriptions, with the length of their topics.
    subscriptions: BTreeMap<SubscriptionId, usize>,
    /// A new subscription whose reply is not queued yet; the reply comes before its events.
    joining: Option<SubscriptionId>,
    /// An event was refused since the last read.
    had_no_room: bool,
    /// A subscription was lost.
    is_lost: bool,
}

impl BusHandle {
    pub(crate) fn new(
        bus: Arc<dyn BusPort>,
        limits: BusHandleLimits,
        share: BudgetShare,
        signal: ReadySignal,
        waiter: Waiter,
    ) -> BusHandle {
        // Room for one reply is kept beside the events.
        let output = FrameQueue::new(limits.output_bytes_max.saturating_add(ANSWER_BYTES_MAX));
        let state = BusInboxState {
            output,
            share,
            topic_bytes: 0,
            receipts: VecDeque::new(),
            subscriptions: BTreeMap::new(),
            joining: None,
            had_no_room: false,
            is_lost: false,
        };
        let inbox = Arc::new(BusInbox { state: Mutex::new(state), signal });
        BusHandle { bus, inbox, waiter, subscriptions_max: limits.subscriptions_max }
    }

    fn execute(&self, request: BusRequest<'_>, rid: u32) -> Result<u32, BusRequestError> {
        match request {
            BusRequest::Subscribe { topic } => self.subscribe(topic),
            // Only subscriptions of this handle can be ended: those of other handles are unknown here.
            BusRequest::Unsubscribe { id } => {
                let is_known = self.inbox.state.lock().remove(id);
                if is_known {
                    self.bus.unsubscribe(id);
                }
                Ok(u32::from(is_known))
            }
            BusRequest::Publish { topic, data } => {
                Ok(self.bus.publish(&BusEvent { topic, data, rid }, &self.waiter)?)
            }
        }
    }

    fn subscribe(&self, topic: &[u8]) -> Result<u32, BusRequestError> {
        if self.inbox.state.lock().subscriptions.len() >= self.subscriptions_max {
            return Err(BusError::TooManySubscriptions.into());
        }
        let id = self.bus.next_subscription()?;
        {
            let mut state = self.inbox.state.lock();
            if !state.share.grow(topic.len()) {
                return Err(BusError::TooManySubscriptions.into());
            }
            state.topic_bytes += topic.len();
            state.subscriptions.insert(id, topic.len());
            state.joining = Some(id);
        }
        let subscriber = Arc::clone(&self.inbox) as Arc<dyn BusSubscriber>;
        let subscribed = self.bus.subscribe(id, topic, subscriber, &self.waiter);
        if let Err(error) = subscribed {
            self.inbox.state.lock().remove(id);
            return Err(error.into());
        }
        Ok(id.0)
    }

    fn reply(&self, op: u16, rid: u32, result: Result<u32, BusRequestError>) {
        let (header, payload) = match result {
            Ok(value) => (Header::ok(op, rid), value.to_le_bytes().to_vec()),
            Err(BusRequestError(trace, message)) => {
                (Header::error(op, rid), error_payload(trace, cut(&message)))
            }
        };
        let queued = self.inbox.state.lock().push(header, &payload, None);
        debug_assert!(queued.is_ok(), "events leave room for one reply: {queued:?}");
    }
}

impl OpenHandle for BusHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ_WRITE
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        let mut state = self.inbox.state.lock();
        let count =
            state.output.read(to).ok_or(if state.is_lost { ZabiError::Closed } else { ZabiError::Again })?;
        state.settle();
        let read = state.take_read();
        let has_room_again = std::mem::take(&mut state.had_no_room);
        drop(state);
        // Not under the lock: the bus may offer the next event at once.
        read.iter().flatten().for_each(|receipt| receipt.was_read());
        if has_room_again {
            self.bus.has_room_again();
        }
        Ok(count)
    }

    fn write(
        &mut self,
        from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        let frame = one_frame(from)?;
        if self.inbox.state.lock().output.room() < ANSWER_BYTES_MAX {
            return Err(ZabiError::Again);
        }
        let Header { op, rid, .. } = frame.header;
        let result = match header_fault(&frame.header) {
            Some(message) => Err(BusRequestError::new("t_event_bus_bad_frame", message)),
            None => BusRequest::decode(op, frame.payload).and_then(|request| self.execute(request, rid)),
        };
        self.reply(op, rid, result);
        if self.inbox.end_joining() {
            self.bus.has_room_again();
        }
        Ok(from.len())
    }

    fn watch_source(&self) -> Option<WatchSource> {
        let state = self.inbox.state.lock();
        let mut ready = Readiness::WRITABLE;
        if !state.output.is_empty() {
            ready = ready | Readiness::READABLE;
        }
        if state.is_lost {
            ready = ready | Readiness::HUP;
        }
        Some(WatchSource::Computed { signal: self.inbox.signal.id(), state: ready })
    }
}

impl Drop for BusHandle {
    fn drop(&mut self) {
        let subscriptions = std::mem::take(&mut self.inbox.state.lock().subscriptions);
        subscriptions.into_keys().for_each(|id| self.bus.unsubscribe(id));
    }
}

impl BusInbox {
    /// Call it when the reply to SUBSCRIBE is queued. Returns whether an event was refused before that.
    fn end_joining(&self) -> bool {
        let mut state = self.state.lock();
        state.joining.take().is_some() && std::mem::take(&mut state.had_no_room)
    }
}

impl BusInboxState {
    fn push(
        &mut self,
        header: Header,
        payload: &[u8],
        receipt: Option<Arc<dyn BusReceipt>>,
    ) -> Result<(), QueueFull> {
        self.output.push(FrameClass::Event, header, payload)?;
        self.receipts.push_back(receipt);
        Ok(())
    }

    /// Returns whether there was such a subscription.
    fn remove(&mut self, subscription: SubscriptionId) -> bool {
        let topic_bytes = self.subscriptions.remove(&subscription);
        self.topic_bytes -= topic_bytes.unwrap_or(0);
        self.settle();
        topic_bytes.is_some()
    }

    /// Gives back to the budget what is no longer needed.
    fn settle(&mut self) {
        self.share.shrink_to(self.output.len_bytes() + self.topic_bytes);
    }

    /// Returns the receipts of the frames that were read to their end.
    fn take_read(&mut self) -> Vec<Option<Arc<dyn BusReceipt>>> {
        let count = self.receipts.len().saturating_sub(self.output.frames());
        self.receipts.drain(..count).collect()
    }
}

impl BusSubscriber for BusInbox {
    fn offer(
        &self,
        subscription: SubscriptionId,
        event: &BusEvent<'_>,
        receipt: Option<Arc<dyn BusReceipt>>,
    ) -> Offered {
        let payload = encode_event(subscription, event);
        {
            let mut state = self.state.lock();
            if !state.subscriptions.contains_key(&subscription) {
                return Offered::Unknown;
            }
            // Room for one reply stays free.
            let bytes = HEADER_BYTES + payload.len();
            let has_room = state.joining != Some(subscription)
                && state.output.room() >= bytes + ANSWER_BYTES_MAX
                && state.share.grow(bytes);
            if !has_room || state.push(Header::ok(OP_EVENT, event.rid), &payload, receipt).is_err() {
                state.had_no_room = true;
                return Offered::NoRoom;
            }
        }
        self.signal.changed();
        Offered::Taken
    }

    fn lost(&self, subscription: SubscriptionId) {
        {
            let mut state = self.state.lock();
            if !state.remove(subscription) {
                return;
            }
            state.is_lost = true;
        }
        self.signal.changed();
    }
}

/// Cuts a message of the bus so that it fits the room for a reply.
fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)]
}
