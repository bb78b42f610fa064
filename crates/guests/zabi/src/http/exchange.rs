//! The exchange between the guest's thread and the HTTP thread: requests that wait for their response, and frames that
//! wait for the guest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use millrace_reactor::ZabiError;
use millrace_reactor::zcl1::{FrameClass, FrameQueue, HEADER_BYTES, Header};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::HttpLimits;
use super::body::ResponseBody;
use super::messages::{HttpError, OP_EV_REQUEST, ResponseHead, encode_stream_body};
use super::request_body::RequestBodyHandle;
use super::runtime::HttpRuntime;
use crate::budget::BudgetShare;
use crate::handles::Handles;
use crate::requests::{ANSWER_BYTES_MAX, error_payload};
use crate::signals::{ProcessSignals, ReadySignal};

/// Room that is reserved for replies to the guest's requests.
const REPLY_BYTES_MAX: usize = 4096;
/// The size of the field of an event that names the handle of a body.
pub(super) const STREAM_FIELD_BYTES: usize = 8;

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) limits: HttpLimits,
    pub(super) signal: ReadySignal,
    signals: Arc<ProcessSignals>,
    pub(super) connections: Arc<Semaphore>,
    responses: Arc<Semaphore>,
    state: Mutex<ExchangeState>,
}

#[derive(Debug)]
struct ExchangeState {
    output: FrameQueue,
    /// The bytes of the events, those with streams included.
    share: BudgetShare,
    /// Requests that the guest has not responded to, by the rid of their event.
    waiting: BTreeMap<u32, oneshot::Sender<AcceptedResponse>>,
    /// Events whose body is a stream: the guest's thread opens a handle for it before the event can be read.
    with_streams: VecDeque<StreamEvent>,
    last_rid: u32,
    is_closed: bool,
}

#[derive(Debug)]
struct StreamEvent {
    rid: u32,
    payload: Vec<u8>,
    body: RequestBodyHandle,
}

#[derive(Debug)]
pub(super) struct GuestResponse {
    pub(super) head: ResponseHead,
    pub(super) body: ResponseBody,
}

/// A response on its way to the client; a process that ends waits for it.
#[derive(Debug)]
pub(super) struct AcceptedResponse {
    pub(super) response: GuestResponse,
    pub(super) on_its_way: Option<OwnedSemaphorePermit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RespondError {
    /// No request has this rid, or it was responded to.
    Unknown,
    Gone,
}

/// A request that waits for its response. Dropped when the client is gone, because then nobody waits any more.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    exchange: Arc<Exchange>,
    rid: u32,
    response: oneshot::Receiver<AcceptedResponse>,
}

impl GuestResponse {
    pub(super) fn whole(head: ResponseHead, body: Bytes) -> GuestResponse {
        GuestResponse { head, body: ResponseBody::Whole(Some(body)) }
    }
}

impl Exchange {
    pub(super) fn new(
        limits: HttpLimits,
        share: BudgetShare,
        signals: &Arc<ProcessSignals>,
        runtime: &HttpRuntime,
    ) -> Exchange {
        let state = ExchangeState {
            output: FrameQueue::new(limits.output_bytes_max.saturating_add(REPLY_BYTES_MAX)),
            share,
            waiting: BTreeMap::new(),
            with_streams: VecDeque::new(),
            last_rid: 0,
            is_closed: false,
        };
        let (signal, signals) = (signals.new_source(), Arc::clone(signals));
        let (connections, responses) = (Arc::clone(&runtime.connections), Arc::clone(&runtime.responses));
        Exchange { limits, signal, signals, connections, responses, state: Mutex::new(state) }
    }

    /// Tells the guest of a request with the event `payload`; `body` is set if the body is a stream. Returns `None` if
    /// too many requests wait, or there is no room for the event.
    pub(super) fn offer(
        self: &Arc<Exchange>,
        payload: Vec<u8>,
        body: Option<RequestBodyHandle>,
    ) -> Option<WaitingRequest> {
        let (send, response) = oneshot::channel();
        let rid = {
            let mut state = self.state.lock();
            let bytes = HEADER_BYTES + payload.len() + STREAM_FIELD_BYTES;
            let needed = bytes + REPLY_BYTES_MAX + state.stream_event_bytes();
            // Events of clients that are gone may still be queued.
            let is_full = state.waiting.len().max(state.with_streams.len()) >= self.limits.requests_max;
            if state.is_closed || is_full || state.output.room() < needed || !state.share.grow(bytes) {
                return None;
            }
            let rid = state.next_rid();
            match body {
                Some(body) => state.with_streams.push_back(StreamEvent { rid, payload, body }),
                None => {
                    let header = Header::ok(OP_EV_REQUEST, rid);
                    state.output.push(FrameClass::Event, header, &payload).ok()?;
                }
            }
            state.waiting.insert(rid, send);
            rid
        };
        self.signal.changed();
        Some(WaitingRequest { exchange: Arc::clone(self), rid, response })
    }

    /// Returns a signal for the body of a request.
    pub(super) fn new_source(&self) -> ReadySignal {
        self.signals.new_source()
    }

    pub(super) fn respond(&self, rid: u32, response: GuestResponse) -> Result<(), RespondError> {
        let waiting = self.state.lock().waiting.remove(&rid).ok_or(RespondError::Unknown)?;
        // There are as many permits as connections, and a connection has one request.
        let on_its_way = Arc::clone(&self.responses).try_acquire_owned().ok();
        waiting.send(AcceptedResponse { response, on_its_way }).map_err(|_| RespondError::Gone)
    }

    pub(super) fn read(&self, to: &mut [u8], handles: &mut Handles) -> Result<usize, ZabiError> {
        let mut state = self.state.lock();
        state.open_streams(handles);
        let count = state.output.read(to).ok_or(ZabiError::Again);
        let bytes = state.output.len_bytes() + state.stream_event_bytes();
        state.share.shrink_to(bytes);
        count
    }

    pub(super) fn is_readable(&self) -> bool {
        let state = self.state.lock();
        !state.output.is_empty() || !state.with_streams.is_empty()
    }

    pub(super) fn has_room_for_reply(&self) -> bool {
        self.state.lock().output.room() >= ANSWER_BYTES_MAX
    }

    pub(super) fn reply(&self, op: u16, rid: u32, result: Result<Vec<u8>, HttpError>) {
        let (header, payload) = match result {
            Ok(payload) => (Header::ok(op, rid), payload),
            Err(error) => {
                let (trace, message) = error.texts();
                (Header::error(op, rid), error_payload(trace, message))
            }
        };
        let queued = self.state.lock().output.push(FrameClass::Reply, header, &payload);
        debug_assert!(queued.is_ok(), "the room was checked before: {queued:?}");
    }

    /// The handle has ended: the host answers the requests that wait.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting.clear();
        state.with_streams.clear();
    }
}

impl ExchangeState {
    /// Opens handles for bodies that are streams and queues their events, as long as there is room for both.
    fn open_streams(&mut self, handles: &mut Handles) {
        while let Some(event) = self.with_streams.front() {
            let needed = HEADER_BYTES + event.payload.len() + REPLY_BYTES_MAX;
            if !handles.has_room() || self.output.room() < needed {
                return;
            }
            let Some(StreamEvent { rid, mut payload, body }) = self.with_streams.pop_front() else { return };
            let Ok(number) = handles.open(Box::new(body)) else { return };
            encode_stream_body(&mut payload, number);
            let queued = self.output.push(FrameClass::Event, Header::ok(OP_EV_REQUEST, rid), &payload);
            debug_assert!(queued.is_ok(), "the room was checked before: {queued:?}");
        }
    }

    fn stream_event_bytes(&self) -> usize {
        let bytes = |event: &StreamEvent| HEADER_BYTES + event.payload.len() + STREAM_FIELD_BYTES;
        self.with_streams.iter().map(bytes).sum()
    }

    /// Returns the next rid. Numbers are reused after 2^32 requests, but not while a request with the number waits.
    fn next_rid(&mut self) -> u32 {
        loop {
            self.last_rid = self.last_rid.wrapping_add(1);
            if self.last_rid != 0 && !self.waiting.contains_key(&self.last_rid) {
                return self.last_rid;
            }
        }
    }
}

impl WaitingRequest {
    /// Returns the response; `None` if the handle ends without one.
    pub(super) async fn response(mut self) -> Option<AcceptedResponse> {
        (&mut self.response).await.ok()
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.exchange.state.lock().waiting.remove(&self.rid);
    }
}
