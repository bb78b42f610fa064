//! The calls of a script, and the bytes that stand for them.
//!
//! A byte chooses the call, its arguments follow. Numbers are little-endian; bytes have their length in front, in one
//! byte. Every input is a script: a length that is too large means the bytes that are left, and a call whose numbers are
//! missing ends the script.

/// A step of the guest. Calls named `...At` take any address; the others have their bytes put where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// The guest writes to its own memory, where addresses in requests may point.
    Put {
        address: u16,
        bytes: &'a [u8],
    },
    /// `zi_cap_open` with the name of a capability: an index of [`super::CAPABILITIES`].
    Open {
        capability: u8,
        params: &'a [u8],
    },
    OpenAt {
        address: u32,
    },
    /// `zi_write` of one well-formed request.
    Request {
        handle: u8,
        op: u8,
        rid: u8,
        payload: &'a [u8],
    },
    Write {
        handle: u8,
        bytes: &'a [u8],
    },
    WriteAt {
        handle: u8,
        address: u32,
        length: u32,
    },
    Read {
        handle: u8,
        length: u16,
    },
    ReadAt {
        handle: u8,
        address: u32,
        length: u32,
    },
    End {
        handle: u8,
    },
    /// `zi_ctl` with a well-formed request.
    Control {
        op: u8,
        payload: &'a [u8],
    },
    ControlAt {
        request: u32,
        request_bytes: u32,
        reply: u32,
        reply_bytes_max: u32,
    },
    Alloc {
        size: u32,
    },
    /// `zi_free` of the block that the n-th `zi_alloc` returned, whether it was freed before or not.
    Free {
        block: u8,
    },
    FreeAt {
        address: u32,
    },
    Flags {
        handle: u8,
    },
    Telemetry {
        topic: u32,
        topic_bytes: u32,
        message: u32,
        message_bytes: u32,
    },
    CapabilityAt {
        index: u8,
        address: u32,
        length: u32,
    },
    /// Another thread ends the next wait in POLL.
    InterruptPoll,
}

/// How many calls there are. Their numbers follow the order of [`Call`].
const CALLS: u8 = 18;

pub(super) fn script(input: &[u8]) -> impl Iterator<Item = Call<'_>> {
    let mut bytes = Bytes { rest: input };
    std::iter::from_fn(move || decode(&mut bytes))
}

pub fn encode_script(calls: &[Call<'_>]) -> Vec<u8> {
    let mut script = Vec::new();
    calls.iter().for_each(|call| encode(call, &mut script));
    assert!(self::script(&script).eq(calls.iter().copied()), "the script is read as it was written");
    script
}

fn decode<'a>(from: &mut Bytes<'a>) -> Option<Call<'a>> {
    Some(match from.u8()? % CALLS {
        0 => Call::Put { address: from.u16()?, bytes: from.prefixed()? },
        1 => Call::Open { capability: from.u8()?, params: from.prefixed()? },
        2 => Call::OpenAt { address: from.u32()? },
        3 => Call::Request { handle: from.u8()?, op: from.u8()?, rid: from.u8()?, payload: from.prefixed()? },
        4 => Call::Write { handle: from.u8()?, bytes: from.prefixed()? },
        5 => Call::WriteAt { handle: from.u8()?, address: from.u32()?, length: from.u32()? },
        6 => Call::Read { handle: from.u8()?, length: from.u16()? },
        7 => Call::ReadAt { handle: from.u8()?, address: from.u32()?, length: from.u32()? },
        8 => Call::End { handle: from.u8()? },
        9 => Call::Control { op: from.u8()?, payload: from.prefixed()? },
        10 => Call::ControlAt {
            request: from.u32()?,
            request_bytes: from.u32()?,
            reply: from.u32()?,
            reply_bytes_max: from.u32()?,
        },
        11 => Call::Alloc { size: from.u32()? },
        12 => Call::Free { block: from.u8()? },
        13 => Call::FreeAt { address: from.u32()? },
        14 => Call::Flags { handle: from.u8()? },
        15 => Call::Telemetry {
            topic: from.u32()?,
            topic_bytes: from.u32()?,
            message: from.u32()?,
            message_bytes: from.u32()?,
        },
        16 => Call::CapabilityAt { index: from.u8()?, address: from.u32()?, length: from.u32()? },
        _ => Call::InterruptPoll,
    })
}

fn encode(call: &Call<'_>, script: &mut Vec<u8>) {
    let mut to = Script(script);
    match *call {
        Call::Put { address, bytes } => to.call(0).u16(address).prefixed(bytes),
        Call::Open { capability, params } => to.call(1).u8(capability).prefixed(params),
        Call::OpenAt { address } => to.call(2).u32(address),
        Call::Request { handle, op, rid, payload } => to.call(3).u8(handle).u8(op).u8(rid).prefixed(payload),
        Call::Write { handle, bytes } => to.call(4).u8(handle).prefixed(bytes),
        Call::WriteAt { handle, address, length } => to.call(5).u8(handle).u32(address).u32(length),
        Call::Read { handle, length } => to.call(6).u8(handle).u16(length),
        Call::ReadAt { handle, address, length } => to.call(7).u8(handle).u32(address).u32(length),
        Call::End { handle } => to.call(8).u8(handle),
        Call::Control { op, payload } => to.call(9).u8(op).prefixed(payload),
        Call::ControlAt { request, request_bytes, reply, reply_bytes_max } => {
            to.call(10).u32(request).u32(request_bytes).u32(reply).u32(reply_bytes_max)
        }
        Call::Alloc { size } => to.call(11).u32(size),
        Call::Free { block } => to.call(12).u8(block),
        Call::FreeAt { address } => to.call(13).u32(address),
        Call::Flags { handle } => to.call(14).u8(handle),
        Call::Telemetry { topic, topic_bytes, message, message_bytes } => {
            to.call(15).u32(topic).u32(topic_bytes).u32(message).u32(message_bytes)
        }
        Call::CapabilityAt { index, address, length } => to.call(16).u8(index).u32(address).u32(length),
        Call::InterruptPoll => to.call(17),
    };
}

/// The bytes of a script that are not decoded yet.
struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn u8(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn prefixed(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u8()?).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(bytes)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*chunk)
    }
}

/// A script that is being written.
struct Script<'a>(&'a mut Vec<u8>);

impl Script<'_> {
    fn call(&mut self, number: u8) -> &mut Self {
        self.u8(number)
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn prefixed(&mut self, bytes: &[u8]) -> &mut Self {
        let length = u8::try_from(bytes.len()).expect("a seed has at most 255 bytes in one place");
        self.u8(length).0.extend(bytes);
        self
    }
}
