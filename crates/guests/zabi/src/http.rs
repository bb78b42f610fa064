//! `net/http`, the server side: the guest listens, gets an event for each request, and responds.
//!
//! `hyper` speaks HTTP on a thread of the process's own (`runtime.rs`). A request waits there until the guest has
//! responded; the connection is closed afterwards. FETCH and MULTIPART are not implemented: they are answered with an
//! error.

mod body;
mod exchange;
mod messages;
mod request_body;
mod runtime;
mod serve;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use millrace_reactor::zcl1::{FieldWriter, HEADER_BYTES, Header};
use millrace_reactor::{Readiness, ZabiError};
use tokio::task::AbortHandle;

use crate::budget::BudgetShare;
use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::limits::Limits;
use crate::memory::GuestMemory;
use crate::requests::header_fault;
use crate::signals::ProcessSignals;
use crate::tcp::{NetAllowList, OpenParams, bind_listener};

use body::{BodyHandle, body_stream};
use exchange::{Exchange, GuestResponse, RespondError};
use messages::{HttpError, HttpRequest, ResponseHead};
pub(crate) use runtime::HttpRuntime;

/// The bounds of one handle; see [`crate::Limits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpLimits {
    pub(crate) listeners_max: usize,
    pub(crate) requests_max: usize,
    pub(crate) body_bytes_max: usize,
    pub(crate) output_bytes_max: usize,
    pub(crate) body_chunks_max: usize,
}

/// Bytes of a response besides its body: its header, its fields and names.
const HEAD_BYTES_MAX: usize = 65_536 + 4096;

/// An open handle of `net/http`.
#[derive(Debug)]
pub(crate) struct HttpHandle {
    exchange: Arc<Exchange>,
    runtime: Arc<HttpRuntime>,
    signals: Arc<ProcessSignals>,
    allowed: NetAllowList,
    limits: HttpLimits,
    tcp_limits: Limits,
    listeners: BTreeMap<u32, AbortHandle>,
    last_listener: u32,
}

impl HttpHandle {
    pub(crate) fn new(
        allowed: NetAllowList,
        all_limits: &Limits,
        share: BudgetShare,
        signals: &Arc<ProcessSignals>,
        runtime: &Arc<HttpRuntime>,
    ) -> HttpHandle {
        let limits = all_limits.http();
        HttpHandle {
            tcp_limits: all_limits.clone(),
            exchange: Arc::new(Exchange::new(limits, share, signals, runtime)),
            runtime: Arc::clone(runtime),
            signals: Arc::clone(signals),
            allowed,
            limits,
            listeners: BTreeMap::new(),
            last_listener: 0,
        }
    }

    fn execute(
        &mut self,
        rid: u32,
        request: HttpRequest<'_>,
        handles: &mut Handles,
    ) -> Result<Vec<u8>, HttpError> {
        match request {
            HttpRequest::Listen { port, host } => self.listen(port, host),
            HttpRequest::CloseListener { id } => {
                let listener = self.listeners.remove(&id).ok_or(HttpError::NoEntry("unknown listener"))?;
                listener.abort();
                Ok(Vec::new())
            }
            HttpRequest::Respond { head, body } => {
                self.respond(rid, GuestResponse::whole(head, body))?;
                Ok(Vec::new())
            }
            HttpRequest::RespondStream { head } => self.respond_stream(rid, head, handles),
        }
    }

    fn listen(&mut self, port: u16, host: &str) -> Result<Vec<u8>, HttpError> {
        let params = OpenParams::http_listener(host, port).map_err(|_| HttpError::Invalid("bad host"))?;
        if !self.allowed.allows(&params.host, port) {
            return Err(HttpError::Denied("listening is not allowed there"));
        }
        if self.listeners.len() >= self.limits.listeners_max {
            return Err(HttpError::OutOfMemory("too many listeners"));
        }
        let failed = |_: ZabiError| HttpError::Io("listen failed");
        let listener = bind_listener(&params, &self.tcp_limits).map_err(failed)?;
        let bound = listener.local_addr().map_err(|_| HttpError::Io("listen failed"))?;
        let id = self.last_listener + 1;
        let exchange = Arc::clone(&self.exchange);
        let task = self.runtime.spawn(move || serve::accept(listener, id, exchange));
        let task = task.map_err(|error| {
            tracing::error!(%error, "the HTTP server of a guest could not be started");
            HttpError::Internal("the server could not be started")
        })?;
        self.last_listener = id;
        self.listeners.insert(id, task);
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u32(id).u32(u32::from(bound.port()));
        payload.extend(mapped(bound.ip()));
        Ok(payload)
    }

    fn respond_stream(
        &mut self,
        rid: u32,
        head: ResponseHead,
        handles: &mut Handles,
    ) -> Result<Vec<u8>, HttpError> {
        if !handles.has_room() {
            return Err(HttpError::OutOfMemory("too many handles"));
        }
        let (handle, body): (BodyHandle, _) =
            body_stream(self.limits.body_chunks_max, self.signals.new_source());
        self.respond(rid, GuestResponse { head, body })?;
        let number =
            handles.open(Box::new(handle)).map_err(|_| HttpError::OutOfMemory("too many handles"))?;
        Ok(number.get().to_le_bytes().to_vec())
    }

    fn respond(&self, rid: u32, response: GuestResponse) -> Result<(), HttpError> {
        self.exchange.respond(rid, response).map_err(|error| match error {
            RespondError::Unknown => HttpError::NoEntry("unknown request"),
            RespondError::Gone => HttpError::Io("the client is gone"),
        })
    }
}

impl OpenHandle for HttpHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ_WRITE
    }

    fn read(&mut self, to: &mut [u8], handles: &mut Handles) -> Result<usize, ZabiError> {
        self.exchange.read(to, handles)
    }

    /// Takes exactly one frame per write. Replies are read before events, so a write is accepted while events are
    /// unread; returns -6 if there is no room for its reply.
    fn write(
        &mut self,
        from: &[u8],
        _memory: &dyn GuestMemory,
        handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        let (header, payload) = self.frame(from)?;
        if !self.exchange.has_room_for_reply() {
            return Err(ZabiError::Again);
        }
        let result = match header_fault(&header) {
            Some(message) => Err(HttpError::Invalid(message)),
            None => HttpRequest::decode(header.op, payload)
                .and_then(|request| self.execute(header.rid, request, handles)),
        };
        self.exchange.reply(header.op, header.rid, result);
        Ok(from.len())
    }

    fn watch_source(&self) -> Option<WatchSource> {
        let readable = if self.exchange.is_readable() { Readiness::READABLE } else { Readiness::NONE };
        let state = readable | Readiness::WRITABLE;
        Some(WatchSource::Computed { signal: self.exchange.signal.id(), state })
    }
}

impl HttpHandle {
    /// Splits a frame. A response may be longer than other frames, because it contains its body.
    fn frame<'a>(&self, from: &'a [u8]) -> Result<(Header, &'a [u8]), ZabiError> {
        let (head, payload) = from.split_first_chunk::<HEADER_BYTES>().ok_or(ZabiError::Invalid)?;
        let header = Header::decode(head).ok_or(ZabiError::Invalid)?;
        if header.payload_bytes as usize > self.limits.body_bytes_max.saturating_add(HEAD_BYTES_MAX) {
            return Err(ZabiError::Bounds);
        }
        if payload.len() == header.payload_bytes as usize {
            Ok((header, payload))
        } else {
            Err(ZabiError::Invalid)
        }
    }
}

impl Drop for HttpHandle {
    fn drop(&mut self) {
        self.listeners.values().for_each(AbortHandle::abort);
        self.exchange.close();
    }
}

/// The address as 16 bytes; an IPv4 address is mapped.
pub(super) fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
