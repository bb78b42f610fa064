//! A guest that performs calls and checks what each returns.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use millrace_reactor::zcl1::{FRAME_BYTES_MAX, FieldWriter, Frame, HEADER_BYTES, Header};
use millrace_zabi::{GuestMemory, HandleFlags, Process, VecMemory, ZabiError};

use super::calls::Call;
use super::handle::{OpenHandle, check_reply};
use super::surroundings::{
    ALLOCATIONS_MAX, CAPABILITIES, Kind, OPEN_REQUEST, REQUEST, RESPONSE, STRINGS, memory, process,
};

const STANDARD_STREAMS: RangeInclusive<i32> = 0..=2;
const BLOCK_ALIGNMENT: u64 = 16;

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) process: Process,
    memory: VecMemory,
    pub(super) open: BTreeMap<i32, OpenHandle>,
    /// Every block that `zi_alloc` ever returned.
    blocks: Vec<u64>,
    /// The blocks that are not freed, with their sizes.
    used: BTreeMap<u64, u32>,
    /// A handle of `file/aio` was opened, or one of a kind that is not known.
    may_use_files: bool,
}

impl Guest {
    pub(super) fn new(folder: &Path) -> Guest {
        Guest {
            process: process(folder),
            memory: memory(),
            open: BTreeMap::new(),
            blocks: Vec::new(),
            used: BTreeMap::new(),
            may_use_files: false,
        }
    }

    pub(super) fn perform(&mut self, call: &Call<'_>) {
        match *call {
            Call::Put { address, bytes } => self.put(address.into(), bytes),
            Call::Open { capability, params } => {
                self.open(usize::from(capability) % CAPABILITIES.len(), params);
            }
            Call::OpenAt { address } => {
                self.open_at(wide(address), None);
            }
            Call::Request { handle, op, rid, payload } => {
                let frame = frame(Header::request(op.into(), rid.into()), payload);
                self.put(REQUEST, &frame);
                self.write_without_timeouts(number(handle), REQUEST, bytes_of(&frame));
            }
            Call::Write { handle, bytes } => {
                self.put(REQUEST, bytes);
                self.write_without_timeouts(number(handle), REQUEST, bytes_of(bytes));
            }
            Call::WriteAt { handle, address, length } => {
                self.write_without_timeouts(number(handle), wide(address), length);
            }
            Call::Read { handle, length } => {
                let _ = self.read_at(number(handle), RESPONSE, length.into());
            }
            Call::ReadAt { handle, address, length } => {
                let _ = self.read_at(number(handle), wide(address), length);
            }
            Call::End { handle } => {
                self.end(number(handle));
            }
            Call::Control { op, payload } => {
                let frame = frame(Header::request(op.into(), 1), payload);
                self.put(REQUEST, &frame);
                self.control_at((REQUEST, bytes_of(&frame)), (RESPONSE, 4096));
            }
            Call::ControlAt { request, request_bytes, reply, reply_bytes_max } => {
                self.control_at((wide(request), request_bytes), (wide(reply), reply_bytes_max));
            }
            Call::Alloc { size } => self.alloc(size),
            Call::Free { block } => {
                let address = self.blocks.get(usize::from(block)).copied();
                self.free(address.unwrap_or(block.into()));
            }
            Call::FreeAt { address } => self.free(wide(address)),
            Call::Flags { handle } => self.flags(number(handle)),
            Call::Telemetry { topic, topic_bytes, message, message_bytes } => {
                let (topic, message) = (wide(topic), wide(message));
                let memory = &mut self.memory;
                let code = self.process.zi_telemetry(memory, topic, topic_bytes, message, message_bytes);
                assert!(code == 0 || code == ZabiError::Bounds.code(), "zi_telemetry: {code}");
            }
            Call::CapabilityAt { index, address, length } => self.capability_at(index, wide(address), length),
            Call::InterruptPoll => self.process.interrupter().interrupt_poll(),
        }
        assert_eq!(self.process.open_handles(), self.open.len());
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        let to = self.memory.bytes_mut(address, bytes_of(bytes)).expect("the address is one of ours");
        to.copy_from_slice(bytes);
    }

    /// Opens one of [`CAPABILITIES`]; returns the handle, or the error's code.
    pub(super) fn open(&mut self, capability: usize, params: &[u8]) -> i32 {
        let (group, name, kind) = CAPABILITIES[capability];
        let strings = [group.as_bytes(), name.as_bytes(), params].concat();
        self.put(STRINGS, &strings);
        let name_at = STRINGS + group.len() as u64;
        let mut request = Vec::new();
        let mut fields = FieldWriter::new(&mut request);
        fields.u64(STRINGS).u32(bytes_of(group.as_bytes()));
        fields.u64(name_at).u32(bytes_of(name.as_bytes())).u32(0);
        fields.u64(name_at + name.len() as u64).u32(bytes_of(params));
        self.put(OPEN_REQUEST, &request);
        let code = self.open_at(OPEN_REQUEST, Some(kind));
        assert!(code < 0 || kind != Kind::Refused && params.is_empty(), "{group}/{name}: {code}");
        code
    }

    fn open_at(&mut self, request: u64, kind: Option<Kind>) -> i32 {
        let code = self.process.zi_cap_open(&mut self.memory, request);
        is_documented("zi_cap_open", code, u32::MAX);
        if code >= 0 {
            assert!(!STANDARD_STREAMS.contains(&code), "zi_cap_open: {code}");
            let before = self.open.insert(code, OpenHandle::new(kind));
            assert!(before.is_none(), "the handle {code} is open already");
            self.may_use_files |= matches!(kind, None | Some(Kind::Aio));
        }
        code
    }

    /// Writes one well-formed request, which has no timeout.
    pub(super) fn request(&mut self, handle: i32, header: Header, payload: &[u8]) -> i32 {
        self.write(handle, &frame(header, payload))
    }

    /// Writes bytes that are no POLL.
    pub(super) fn write(&mut self, handle: i32, bytes: &[u8]) -> i32 {
        self.put(REQUEST, bytes);
        self.write_at(handle, REQUEST, bytes_of(bytes))
    }

    fn write_without_timeouts(&mut self, handle: i32, address: u64, length: u32) {
        // A loop refuses longer writes, so no POLL in them is executed.
        let is_short = length as usize <= FRAME_BYTES_MAX;
        if let (Some(open), true) = (self.open.get(&handle), is_short)
            && let Ok(bytes) = self.memory.bytes_mut(address, length)
        {
            open.written.without_timeouts(bytes);
        }
        self.write_at(handle, address, length);
    }

    fn write_at(&mut self, handle: i32, address: u64, length: u32) -> i32 {
        let code = self.process.zi_write(&mut self.memory, handle, address, length);
        is_documented("zi_write", code, length);
        self.is_known(handle, code);
        if let (Some(open), Ok(taken)) = (self.open.get_mut(&handle), u32::try_from(code)) {
            open.written.push(self.memory.bytes(address, taken).expect("the host took these bytes"));
        }
        code
    }

    /// Reads to `address` and checks the bytes. Returns the header of the frame that ends with them.
    pub(super) fn read_at(
        &mut self,
        handle: i32,
        address: u64,
        length: u32,
    ) -> Result<Option<Header>, ZabiError> {
        let code = self.process.zi_read(&mut self.memory, handle, address, length);
        is_documented("zi_read", code, length);
        self.is_known(handle, code);
        let count = u32::try_from(code).map_err(|_| error(code))?;
        match self.open.get_mut(&handle) {
            Some(open) if open.has_frames() && length > 0 => {
                Ok(open.read(self.memory.bytes(address, count).expect("the host wrote these bytes")))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn end(&mut self, handle: i32) -> i32 {
        let code = self.process.zi_end(handle);
        self.is_known(handle, code);
        assert!(code == 0 || code == ZabiError::NotSupported.code(), "zi_end: {code}");
        self.open.remove(&handle);
        code
    }

    /// Every reply is one well-formed frame.
    fn control_at(&mut self, request: (u64, u32), reply: (u64, u32)) {
        let code = self.process.zi_ctl(&mut self.memory, request.0, request.1, reply.0, reply.1);
        is_documented("zi_ctl", code, reply.1);
        if let Ok(count) = u32::try_from(code) {
            let bytes = self.memory.bytes(reply.0, count).expect("the host wrote these bytes");
            check_reply(&Frame::decode(bytes).expect("a reply of zi_ctl is one frame"));
        }
    }

    /// A block lies inside the memory and beside every other block.
    fn alloc(&mut self, size: u32) {
        let address = self.process.zi_alloc(&mut self.memory, size);
        if address == 0 {
            return;
        }
        assert!(size > 0 && self.used.len() < ALLOCATIONS_MAX && address.is_multiple_of(BLOCK_ALIGNMENT));
        assert!(self.memory.bytes(address, size).is_ok(), "{address} + {size}");
        let ends_before = |(start, bytes): (&u64, &u32)| *start + u64::from(*bytes) <= address;
        assert!(self.used.range(..=address).next_back().is_none_or(ends_before), "{address}");
        let next = self.used.range(address..).next();
        assert!(next.is_none_or(|(start, _)| address + u64::from(size) <= *start), "{address}");
        self.used.insert(address, size);
        self.blocks.push(address);
    }

    fn free(&mut self, address: u64) {
        let expected = self.used.remove(&address).map_or(ZabiError::Invalid.code(), |_| 0);
        assert_eq!(self.process.zi_free(address), expected, "zi_free");
    }

    fn flags(&mut self, handle: i32) {
        let flags = HandleFlags(self.process.zi_handle_hflags(handle));
        let kind = self.open.get(&handle).map(|open| open.kind);
        match (handle, kind) {
            (0, _) | (_, Some(Some(Kind::List))) => assert_eq!(flags, HandleFlags::READ),
            (1 | 2, _) => assert_eq!(flags, HandleFlags::WRITE),
            (_, Some(Some(_))) => assert_eq!(flags, HandleFlags::READ_WRITE),
            (_, Some(None)) => assert_ne!(flags, HandleFlags::NONE),
            (_, None) => assert_eq!(flags, HandleFlags::NONE),
        }
    }

    fn capability_at(&mut self, index: u8, address: u64, length: u32) {
        let index = number(index);
        let size = self.process.zi_cap_get_size(index);
        let is_there = (0..self.process.zi_cap_count()).contains(&index);
        assert_eq!(size, if is_there { size.max(1) } else { ZabiError::NoEntry.code() });
        let code = self.process.zi_cap_get(&mut self.memory, index, address, length);
        assert!(code == size || is_there && code == ZabiError::Bounds.code(), "zi_cap_get: {code}");
    }

    /// Handles that are not open have one answer.
    fn is_known(&self, handle: i32, code: i32) {
        let is_open = STANDARD_STREAMS.contains(&handle) || self.open.contains_key(&handle);
        let not_supported = ZabiError::NotSupported.code();
        assert!(is_open || code == not_supported, "{code} for the handle {handle}, which is not open");
        assert!(!is_open || code != not_supported, "{code} for the handle {handle}, which is open");
    }

    /// Whether there may be files in the folder.
    pub(super) fn may_use_files(&self) -> bool {
        self.may_use_files
    }

    pub(super) fn handles(&self) -> BTreeSet<i32> {
        self.open.keys().copied().collect()
    }
}

/// A call returns a count up to `max`, or one of the documented errors.
fn is_documented(call: &str, code: i32, max: u32) {
    let is_count = u32::try_from(code).is_ok_and(|count| count <= max);
    assert!(is_count || ZabiError::from_code(code).is_some(), "{call}: {code}, at most {max}");
}

fn error(code: i32) -> ZabiError {
    ZabiError::from_code(code).expect("the code is documented")
}

fn frame(header: Header, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= FRAME_BYTES_MAX - HEADER_BYTES);
    Frame::encode(header, payload).expect("the payload fits a frame")
}

fn bytes_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a script is short")
}

/// Handles are small numbers, so a byte names them; two bytes stand for the ends of the range.
fn number(handle: u8) -> i32 {
    match handle.cast_signed() {
        i8::MIN => i32::MIN,
        i8::MAX => i32::MAX,
        number => number.into(),
    }
}

/// Addresses are 32 bits in scripts; the highest 64 KiB stand for the end of 64 bits.
fn wide(address: u32) -> u64 {
    match address {
        0xFFFF_0000.. => u64::MAX - u64::from(u32::MAX - address),
        address => address.into(),
    }
}
