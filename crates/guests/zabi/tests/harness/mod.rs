//! A guest for tests: a process, its memory, and the calls with bytes instead of addresses.
#![allow(dead_code, clippy::unwrap_used)]

use std::sync::Arc;

use millrace_reactor::zcl1::{ErrorPayload, FieldWriter, Frame, Header, STATUS_OK};
use millrace_reactor::{PollEvent, PollReply};
use millrace_zabi::{
    FileRoot, Grants, GuestMemory, LocalBus, NetAllowList, Process, ProcessOptions, TcpPolicy, VecMemory,
};

/// The addresses that the recordings of the reference use.
pub(crate) const REQUEST: u64 = 4096;
pub(crate) const RESPONSE: u64 = 131_072;
pub(crate) const PARAMS: u64 = 262_144;
pub(crate) const STRINGS: u64 = 266_240;
pub(crate) const OPEN_REQUEST: u64 = 270_336;
pub(crate) const MEMORY_BYTES: usize = 1 << 20;

pub(crate) const READABLE: u32 = 1;
pub(crate) const WRITABLE: u32 = 2;
pub(crate) const FOREVER: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) process: Process,
    pub(crate) memory: VecMemory,
    next_rid: u32,
}

/// A reply frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) op: u16,
    pub(crate) rid: u32,
    pub(crate) is_ok: bool,
    pub(crate) payload: Vec<u8>,
}

impl Reply {
    pub(crate) fn of(bytes: &[u8]) -> Reply {
        let frame = Frame::decode(bytes).unwrap();
        frame.header.check_reply().unwrap();
        let Header { op, rid, status, .. } = frame.header;
        let is_ok = status == STATUS_OK;
        if !is_ok {
            ErrorPayload::decode(frame.payload).unwrap();
        }
        Reply { op, rid, is_ok, payload: frame.payload.to_vec() }
    }

    pub(crate) fn error(&self) -> (String, String) {
        assert!(!self.is_ok, "{self:?}");
        let error = ErrorPayload::decode(&self.payload).unwrap();
        (error.trace.to_owned(), error.message.to_owned())
    }

    pub(crate) fn message(&self) -> String {
        self.error().1
    }
}

/// Grants for everything but files.
pub(crate) fn everything_here() -> Grants {
    let grants = Grants::none().sys_loop().sys_info().net_tcp(TcpPolicy::loopback()).async_default();
    let grants = grants.net_http(NetAllowList::loopback());
    grants.event_bus(Arc::new(LocalBus::default())).proc_argv(["guest", "one"]).proc_env(["A=1"])
}

/// Grants for everything, with the files of a folder.
pub(crate) fn with_files(folder: &std::path::Path) -> Grants {
    everything_here().file_aio(FileRoot::open(folder).unwrap())
}

impl Guest {
    pub(crate) fn new(grants: Grants) -> Guest {
        Guest::with(ProcessOptions::new("test", grants))
    }

    pub(crate) fn with(options: ProcessOptions) -> Guest {
        Guest { process: Process::new(options), memory: VecMemory::new(MEMORY_BYTES), next_rid: 1 }
    }

    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        self.memory.bytes_mut(address, bytes.len() as u32).unwrap().copy_from_slice(bytes);
    }

    /// Bytes in the guest's memory.
    pub(crate) fn at(&self, address: u64, length: usize) -> Vec<u8> {
        self.memory.bytes(address, length as u32).unwrap().to_vec()
    }

    pub(crate) fn open(&mut self, kind: &str, name: &str, params: &[u8]) -> i32 {
        self.put(STRINGS, kind.as_bytes());
        self.put(STRINGS + kind.len() as u64, name.as_bytes());
        self.put(PARAMS, params);
        let mut request = Vec::new();
        let mut fields = FieldWriter::new(&mut request);
        fields.u64(STRINGS).u32(kind.len() as u32);
        fields.u64(STRINGS + kind.len() as u64).u32(name.len() as u32).u32(0);
        fields.u64(if params.is_empty() { 0 } else { PARAMS }).u32(params.len() as u32);
        self.put(OPEN_REQUEST, &request);
        self.process.zi_cap_open(&mut self.memory, OPEN_REQUEST)
    }

    pub(crate) fn open_ok(&mut self, kind: &str, name: &str) -> i32 {
        let handle = self.open(kind, name, &[]);
        assert!(handle >= 3, "{kind}/{name}: {handle}");
        handle
    }

    pub(crate) fn tcp(&mut self, host: &str, port: u16, flags: u32) -> i32 {
        let at = STRINGS + 64;
        self.put(at, host.as_bytes());
        let mut params = Vec::new();
        let mut fields = FieldWriter::new(&mut params);
        fields.u64(at).u32(host.len() as u32).u32(port.into()).u32(flags);
        self.open("net", "tcp", &params)
    }

    /// Returns a listener on a free port of 127.0.0.1, and the port.
    pub(crate) fn listen(&mut self) -> (i32, u16) {
        let (host, out) = (STRINGS + 64, STRINGS + 128);
        self.put(host, b"127.0.0.1");
        let mut params = Vec::new();
        FieldWriter::new(&mut params).u64(host).u32(9).u32(0).u32(1).u32(0).u64(out);
        let handle = self.open("net", "tcp", &params);
        assert!(handle >= 3, "{handle}");
        let port = u32::from_le_bytes(self.at(out, 4).try_into().unwrap());
        (handle, port as u16)
    }

    pub(crate) fn write(&mut self, handle: i32, bytes: &[u8]) -> i32 {
        self.put(REQUEST, bytes);
        self.process.zi_write(&mut self.memory, handle, REQUEST, bytes.len() as u32)
    }

    pub(crate) fn read_max(&mut self, handle: i32, max: u32) -> Result<Vec<u8>, i32> {
        match self.process.zi_read(&mut self.memory, handle, RESPONSE, max) {
            code if code < 0 => Err(code),
            count => Ok(self.at(RESPONSE, count as usize)),
        }
    }

    pub(crate) fn read(&mut self, handle: i32) -> Result<Vec<u8>, i32> {
        self.read_max(handle, 65_536)
    }

    pub(crate) fn frame(&mut self, op: u16, payload: &[u8]) -> Vec<u8> {
        self.next_rid += 1;
        Frame::encode(Header::request(op, self.next_rid), payload).unwrap()
    }

    /// Sends a request and returns the first frame that is queued afterwards.
    pub(crate) fn request(&mut self, handle: i32, op: u16, payload: &[u8]) -> Reply {
        let frame = self.frame(op, payload);
        assert_eq!(self.write(handle, &frame), frame.len() as i32);
        let reply = Reply::of(&self.read(handle).unwrap());
        assert_eq!(reply.rid, self.next_rid);
        reply
    }

    /// Reads every frame that is queued.
    pub(crate) fn replies(&mut self, handle: i32) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Ok(bytes) = self.read(handle) {
            replies.push(Reply::of(&bytes));
        }
        replies
    }

    pub(crate) fn watch(&mut self, sys_loop: i32, handle: i32, events: u32, id: u64) -> Reply {
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u32(handle as u32).u32(events).u64(id).u32(0);
        self.request(sys_loop, 1, &payload)
    }

    pub(crate) fn arm(&mut self, sys_loop: i32, id: u64, delay_ns: u64, interval_ns: u64) {
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(id).u64(delay_ns).u64(interval_ns).u32(1);
        assert!(self.request(sys_loop, 3, &payload).is_ok);
    }

    pub(crate) fn poll(&mut self, sys_loop: i32, max_events: u32, timeout_ms: u32) -> Vec<PollEvent> {
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u32(max_events).u32(timeout_ms);
        let reply = self.request(sys_loop, 5, &payload);
        assert!(reply.is_ok, "{:?}", reply.error());
        PollReply::decode(&reply.payload).unwrap().events
    }

    /// Polls and returns (watch_id, bits) of the ready handles.
    pub(crate) fn ready(&mut self, sys_loop: i32, timeout_ms: u32) -> Vec<(u64, u32)> {
        let events = self.poll(sys_loop, 64, timeout_ms);
        let ready = events.into_iter().filter_map(|event| match event {
            PollEvent::Ready { watch_id, readiness, .. } => Some((watch_id.0.get(), readiness.bits())),
            PollEvent::Timer { .. } => None,
        });
        ready.collect()
    }
}

/// How many descriptors this process has open. Tests that count them run alone in their file.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
