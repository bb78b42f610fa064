//! Where the guest's thread and the HTTP thread meet: requests that wait for their response, and frames that wait for the
//! guest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millrace_reactor::ErrorCode;
use millrace_reactor::zcl1::{FrameClass, FrameQueue, HEADER_BYTES, Header};
use tokio::sync::{Semaphore, oneshot};

use super::HttpLimits;
use super::body::ResponseBody;
use super::messages::{HttpError, OP_EV_REQUEST, ResponseHead};
use crate::requests::{ANSWER_BYTES_MAX, error_payload};
use crate::signals::ReadySignal;

/// Replies of the guest's requests have this room for themselves.
const REPLY_BYTES_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) limits: HttpLimits,
    pub(super) signal: ReadySignal,
    /// One permit for each connection of all listeners.
    pub(super) connections: Arc<Semaphore>,
    state: Mutex<ExchangeState>,
}

#[derive(Debug)]
struct ExchangeState {
    output: FrameQueue,
    /// Requests that the guest has not responded to, by the rid of their event.
    waiting: BTreeMap<u32, oneshot::Sender<GuestResponse>>,
    last_rid: u32,
    is_closed: bool,
}

#[derive(Debug)]
pub(super) struct GuestResponse {
    pub(super) head: ResponseHead,
    pub(super) body: ResponseBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RespondError {
    /// No request has this rid, or it was responded to.
    Unknown,
    Gone,
}

/// A request that waits for its response. Dropped when the client is gone: then nobody waits any more.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    exchange: Arc<Exchange>,
    rid: u32,
    response: oneshot::Receiver<GuestResponse>,
}

impl GuestResponse {
    pub(super) fn whole(head: ResponseHead, body: Bytes) -> GuestResponse {
        GuestResponse { head, body: ResponseBody::Whole(Some(body)) }
    }
}

impl Exchange {
    pub(super) fn new(limits: HttpLimits, signal: ReadySignal) -> Exchange {
        let state = ExchangeState {
            output: FrameQueue::new(limits.output_bytes_max.saturating_add(REPLY_BYTES_MAX)),
            waiting: BTreeMap::new(),
            last_rid: 0,
            is_closed: false,
        };
        let connections = Arc::new(Semaphore::new(limits.connections_max));
        Exchange { limits, signal, connections, state: Mutex::new(state) }
    }

    /// Tells the guest of a request. Returns `None` if too many wait, or their events have no room.
    pub(super) fn offer(self: &Arc<Exchange>, payload: &[u8]) -> Option<WaitingRequest> {
        let (send, response) = oneshot::channel();
        let rid = {
            let mut state = self.state();
            let needed = HEADER_BYTES + payload.len() + REPLY_BYTES_MAX;
            if state.is_closed
                || state.waiting.len() >= self.limits.requests_max
                || state.output.room() < needed
            {
                return None;
            }
            let rid = state.next_rid();
            state.output.push(FrameClass::Event, Header::ok(OP_EV_REQUEST, rid), payload).ok()?;
            state.waiting.insert(rid, send);
            rid
        };
        self.signal.changed();
        Some(WaitingRequest { exchange: Arc::clone(self), rid, response })
    }

    pub(super) fn respond(&self, rid: u32, response: GuestResponse) -> Result<(), RespondError> {
        let waiting = self.state().waiting.remove(&rid).ok_or(RespondError::Unknown)?;
        waiting.send(response).map_err(|_| RespondError::Gone)
    }

    pub(super) fn read(&self, to: &mut [u8]) -> Result<usize, ErrorCode> {
        self.state().output.read(to).ok_or(ErrorCode::Again)
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.state().output.is_empty()
    }

    pub(super) fn has_room_for_reply(&self) -> bool {
        self.state().output.room() >= ANSWER_BYTES_MAX
    }

    pub(super) fn reply(&self, op: u16, rid: u32, result: Result<Vec<u8>, HttpError>) {
        let (header, payload) = match result {
            Ok(payload) => (Header::ok(op, rid), payload),
            Err(error) => {
                let (trace, message) = error.texts();
                (Header::error(op, rid), error_payload(trace, message))
            }
        };
        let queued = self.state().output.push(FrameClass::Reply, header, &payload);
        debug_assert!(queued.is_ok(), "the room was checked before: {queued:?}");
    }

    /// The handle has ended: requests that wait are answered by the host.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.clear();
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        // No code under this lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExchangeState {
    /// Numbers are used again after 2^32 requests, but not one that still waits.
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
    pub(super) async fn response(mut self) -> Option<GuestResponse> {
        (&mut self.response).await.ok()
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.exchange.state().waiting.remove(&self.rid);
    }
}
