//! A guest as part of the load: a process of the zABI host, its memory, and the requests it sends to its loop.

use std::net::{TcpListener, TcpStream};
use std::num::{NonZeroU32, NonZeroU64};

use millrace_reactor::zcl1::{FieldWriter, Frame, STATUS_OK};
use millrace_reactor::{FirstDue, PollEvent, PollReply, PollTimeout, Readiness, Request, TimerId, WatchId};
use millrace_zabi::{Grants, GuestMemory, Process, ProcessOptions, TcpPolicy, VecMemory};

use crate::error::BenchError;

const MEMORY_BYTES: usize = 1 << 20;
/// Addresses in the guest's memory where the guest writes its requests and the host writes the replies.
const REQUEST: u64 = 4096;
const REPLY: u64 = 131_072;
const REPLY_BYTES: u32 = 65_536;
/// Address of the parts of a request to open a capability.
const OPEN: u64 = 262_144;

pub(super) struct Guest {
    process: Process,
    memory: VecMemory,
    sys_loop: i32,
    rid: u32,
}

fn wrong(what: impl Into<String>) -> BenchError {
    BenchError::Unexpected(what.into())
}

/// Returns the id of a watch or timer with this number.
fn id(number: u64) -> Result<NonZeroU64, BenchError> {
    NonZeroU64::new(number).ok_or_else(|| wrong("0 is no id of a watch or timer"))
}

impl Guest {
    pub(super) fn new() -> Result<Guest, BenchError> {
        let grants = Grants::none().sys_loop().net_tcp(TcpPolicy::loopback());
        let process = Process::new(ProcessOptions::new("bench", grants));
        let mut guest = Guest { process, memory: VecMemory::new(MEMORY_BYTES), sys_loop: 0, rid: 0 };
        guest.sys_loop = guest.open("sys", "loop", &[])?;
        Ok(guest)
    }

    /// Returns a stream of the guest and its other end.
    pub(super) fn connect(&mut self, listener: &TcpListener) -> Result<(i32, TcpStream), BenchError> {
        let io = |source| BenchError::io("connecting a guest", source);
        let port = listener.local_addr().map_err(io)?.port();
        let (host, at) = (b"127.0.0.1", OPEN + 512);
        self.put(at, host)?;
        let mut params = Vec::new();
        FieldWriter::new(&mut params).u64(at).u32(host.len() as u32).u32(port.into()).u32(0);
        let handle = self.open("net", "tcp", &params)?;
        Ok((handle, listener.accept().map_err(io)?.0))
    }

    fn put(&mut self, address: u64, bytes: &[u8]) -> Result<(), BenchError> {
        let room = self.memory.bytes_mut(address, bytes.len() as u32);
        room.map_err(|_| wrong("the guest's memory is too small"))?.copy_from_slice(bytes);
        Ok(())
    }

    fn open(&mut self, kind: &str, name: &str, params: &[u8]) -> Result<i32, BenchError> {
        let (kind_at, name_at, params_at) = (OPEN + 64, OPEN + 128, OPEN + 256);
        self.put(kind_at, kind.as_bytes())?;
        self.put(name_at, name.as_bytes())?;
        self.put(params_at, params)?;
        let mut request = Vec::new();
        let mut fields = FieldWriter::new(&mut request);
        fields.u64(kind_at).u32(kind.len() as u32).u64(name_at).u32(name.len() as u32).u32(0);
        fields.u64(if params.is_empty() { 0 } else { params_at }).u32(params.len() as u32);
        self.put(OPEN, &request)?;
        match self.process.zi_cap_open(&mut self.memory, OPEN) {
            handle if handle > 0 => Ok(handle),
            code => Err(wrong(format!("a guest's {kind}/{name} was not opened: {code}"))),
        }
    }

    pub(super) fn watch(&mut self, handle: i32, number: u64) -> Result<(), BenchError> {
        let watch_id = WatchId(id(number)?);
        self.request(Request::Watch { handle: handle as u32, interest: Readiness::READABLE, watch_id })?;
        Ok(())
    }

    pub(super) fn arm(&mut self, number: u64, after_ns: u64) -> Result<(), BenchError> {
        let (timer_id, due) = (TimerId(id(number)?), FirstDue::After(after_ns));
        self.request(Request::TimerArm { timer_id, due, interval_ns: None })?;
        Ok(())
    }

    pub(super) fn cancel(&mut self, number: u64) -> Result<(), BenchError> {
        self.request(Request::TimerCancel { timer_id: TimerId(id(number)?) })?;
        Ok(())
    }

    /// Returns how many events the POLL reported.
    pub(super) fn poll(&mut self, timeout: PollTimeout) -> Result<usize, BenchError> {
        let max_events = NonZeroU32::MIN.saturating_add(63);
        let payload = self.request(Request::Poll { max_events, timeout })?;
        let reply = PollReply::decode(payload).map_err(|error| wrong(format!("a POLL's reply: {error}")))?;
        Ok(reply
            .events
            .iter()
            .filter(|event| matches!(event, PollEvent::Ready { .. } | PollEvent::Timer { .. }))
            .count())
    }

    /// Sends one request and returns the payload of its reply.
    fn request(&mut self, request: Request) -> Result<&[u8], BenchError> {
        self.rid = self.rid.wrapping_add(1);
        let frame = request.frame(self.rid);
        self.put(REQUEST, &frame)?;
        let length = frame.len() as u32;
        match self.process.zi_write(&mut self.memory, self.sys_loop, REQUEST, length) {
            written if written == length as i32 => {}
            code => return Err(wrong(format!("zi_write of {request:?} returned {code}"))),
        }
        let read = self.process.zi_read(&mut self.memory, self.sys_loop, REPLY, REPLY_BYTES);
        let length = u32::try_from(read).map_err(|_| wrong(format!("zi_read returned {read}")))?;
        let bytes =
            self.memory.bytes(REPLY, length).map_err(|_| wrong("a reply beyond the guest's memory"))?;
        let frame = Frame::decode(bytes).map_err(|error| wrong(format!("a reply of the loop: {error}")))?;
        match frame.header.status {
            STATUS_OK => Ok(frame.payload),
            _ => Err(wrong(format!("the loop refused {request:?}"))),
        }
    }
}
