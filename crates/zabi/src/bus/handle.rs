//! One open handle of `event/bus`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_reactor::zcl1::{FrameClass, FrameQueue, Header};
use millrace_reactor::{ErrorCode, Readiness};

use super::BusHandleLimits;
use super::messages::{BusRequest, BusRequestError, OP_EVENT, encode_event};
use super::port::{BusEvent, BusPort, BusSubscriber, SubscriptionId};
use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::requests::{ANSWER_BYTES_MAX, error_payload, header_fault, one_frame};
use crate::signals::ReadySignal;

#[derive(Debug)]
pub(crate) struct BusHandle {
    bus: Arc<dyn BusPort>,
    inbox: Arc<Inbox>,
    subscriptions_max: usize,
}

/// Where events of all subscriptions of a handle arrive, from any thread.
#[derive(Debug)]
struct Inbox {
    state: Mutex<InboxState>,
    signal: ReadySignal,
}

/// Replies and events leave in the order in which they came: a guest that hears itself reads the EVENT before the reply
/// of its PUBLISH, as with the reference.
#[derive(Debug)]
struct InboxState {
    output: FrameQueue,
    subscriptions: BTreeSet<SubscriptionId>,
}

impl BusHandle {
    pub(crate) fn new(bus: Arc<dyn BusPort>, limits: BusHandleLimits, signal: ReadySignal) -> BusHandle {
        // Replies always have room beside the events.
        let output = FrameQueue::new(limits.output_bytes_max.saturating_add(ANSWER_BYTES_MAX));
        let state = Mutex::new(InboxState { output, subscriptions: BTreeSet::new() });
        let inbox = Arc::new(Inbox { state, signal });
        BusHandle { bus, inbox, subscriptions_max: limits.subscriptions_max }
    }

    fn execute(&self, request: BusRequest<'_>, rid: u32) -> Result<u32, BusRequestError> {
        match request {
            BusRequest::Subscribe { topic } => {
                if self.inbox.state().subscriptions.len() >= self.subscriptions_max {
                    return Err(BusRequestError("t_event_bus_oom", "too many subscriptions"));
                }
                let subscriber = Arc::clone(&self.inbox) as Arc<dyn BusSubscriber>;
                let id = self.bus.subscribe(topic, subscriber)?;
                self.inbox.state().subscriptions.insert(id);
                Ok(id.0)
            }
            // Only subscriptions of this handle: those of others are unknown here.
            BusRequest::Unsubscribe { id } => {
                let is_known = self.inbox.state().subscriptions.remove(&id);
                if is_known {
                    self.bus.unsubscribe(id);
                }
                Ok(u32::from(is_known))
            }
            BusRequest::Publish { topic, data } => Ok(self.bus.publish(&BusEvent { topic, data, rid })?),
        }
    }

    fn reply(&self, op: u16, rid: u32, result: Result<u32, BusRequestError>) {
        let (header, payload) = match result {
            Ok(value) => (Header::ok(op, rid), value.to_le_bytes().to_vec()),
            Err(BusRequestError(trace, message)) => (Header::error(op, rid), error_payload(trace, message)),
        };
        let queued = self.inbox.state().output.push(FrameClass::Event, header, &payload);
        debug_assert!(queued.is_ok(), "events leave room for one reply: {queued:?}");
    }
}

impl OpenHandle for BusHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ_WRITE
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ErrorCode> {
        self.inbox.state().output.read(to).ok_or(ErrorCode::Again)
    }

    fn write(
        &mut self,
        from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ErrorCode> {
        let frame = one_frame(from)?;
        if self.inbox.state().output.room() < ANSWER_BYTES_MAX {
            return Err(ErrorCode::Again);
        }
        let Header { op, rid, .. } = frame.header;
        let result = match header_fault(&frame.header) {
            Some(message) => Err(BusRequestError("t_event_bus_bad_frame", message)),
            None => BusRequest::decode(op, frame.payload).and_then(|request| self.execute(request, rid)),
        };
        self.reply(op, rid, result);
        Ok(from.len())
    }

    fn watch_source(&self) -> Option<WatchSource> {
        let state = match self.inbox.state().output.is_empty() {
            true => Readiness::WRITABLE,
            false => Readiness::READABLE | Readiness::WRITABLE,
        };
        Some(WatchSource::Computed { signal: self.inbox.signal.id(), state })
    }
}

impl Drop for BusHandle {
    fn drop(&mut self) {
        let subscriptions = std::mem::take(&mut self.inbox.state().subscriptions);
        subscriptions.into_iter().for_each(|id| self.bus.unsubscribe(id));
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BusSubscriber for Inbox {
    fn deliver(&self, subscription: SubscriptionId, event: &BusEvent<'_>) -> bool {
        let payload = encode_event(subscription, event);
        {
            let mut state = self.state();
            let frame_bytes = millrace_reactor::zcl1::HEADER_BYTES + payload.len();
            // The room of one reply stays free.
            let has_room = state.output.room() >= frame_bytes + ANSWER_BYTES_MAX;
            let is_known = state.subscriptions.contains(&subscription);
            if !has_room || !is_known {
                return false;
            }
            let header = Header::ok(OP_EVENT, event.rid);
            if state.output.push(FrameClass::Event, header, &payload).is_err() {
                return false;
            }
        }
        self.signal.changed();
        true
    }
}
