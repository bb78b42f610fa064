//! The reply of POLL: a head of 16 bytes and 32 bytes per event. The other requests have empty replies.

use std::num::NonZeroU64;

use thiserror::Error;

use crate::messages::request::{TimerId, WatchId};
use crate::readiness::Readiness;
use crate::time::MonoNs;
use crate::zcl1::{FieldError, FieldReader, FieldWriter};

pub const POLL_REPLY_HEAD_BYTES: usize = 16;
pub const EVENT_BYTES: usize = 32;

const REPLY_VERSION: u32 = 1;
const FLAG_MORE: u32 = 1;
const KIND_READY: u32 = 1;
const KIND_TIMER: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEvent {
    Ready {
        watch_id: WatchId,
        handle: u32,
        /// A subset of the watch's interest, never empty.
        readiness: Readiness,
    },
    /// `at` is the time at delivery, the same in all events of one POLL.
    Timer { timer_id: TimerId, at: MonoNs },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollReply {
    /// Whether further events were pending that did not fit into this reply.
    pub more: bool,
    pub events: Vec<PollEvent>,
}

/// The payload is not a valid reply of POLL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadPollReply {
    #[error("wrong length: {0}")]
    Length(#[from] FieldError),
    #[error("a field has a value that the protocol does not allow")]
    Value,
}

impl PollReply {
    pub fn encode(&self, payload: &mut Vec<u8>) {
        payload.reserve(POLL_REPLY_HEAD_BYTES + EVENT_BYTES * self.events.len());
        let count = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        let flags = if self.more { FLAG_MORE } else { 0 };
        let mut fields = FieldWriter::new(payload);
        fields.u32(REPLY_VERSION).u32(flags).u32(count).u32(0);
        self.events.iter().for_each(|event| event.encode(&mut fields));
    }

    /// Reads a reply strictly, for clients: tests, simulators, native guests.
    ///
    /// # Errors
    ///
    /// [`BadPollReply`]
    pub fn decode(payload: &[u8]) -> Result<PollReply, BadPollReply> {
        let mut fields = FieldReader::new(payload);
        let (version, flags, count, reserved) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        if version != REPLY_VERSION || flags & !FLAG_MORE != 0 || reserved != 0 {
            return Err(BadPollReply::Value);
        }
        // The list grows with the bytes that are present, not with the announced count.
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(PollEvent::decode(&mut fields)?);
        }
        fields.finish()?;
        Ok(PollReply { more: flags == FLAG_MORE, events })
    }
}

impl PollEvent {
    fn encode(&self, fields: &mut FieldWriter<'_>) {
        match *self {
            PollEvent::Ready { watch_id, handle, readiness } => {
                fields.u32(KIND_READY).u32(readiness.bits()).u32(handle).u32(0);
                fields.u64(watch_id.0.get()).u64(0);
            }
            PollEvent::Timer { timer_id, at } => {
                fields.u32(KIND_TIMER).u32(0).u32(0).u32(0);
                fields.u64(timer_id.0.get()).u64(at.0);
            }
        }
    }

    fn decode(fields: &mut FieldReader<'_>) -> Result<PollEvent, BadPollReply> {
        let (kind, events, handle, reserved) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let (id, data) = (fields.u64()?, fields.u64()?);
        let id = NonZeroU64::new(id).ok_or(BadPollReply::Value)?;
        let readiness = Readiness::from_bits(events).ok_or(BadPollReply::Value)?;
        match (kind, reserved) {
            (KIND_READY, 0) if data == 0 && !readiness.is_empty() => {
                Ok(PollEvent::Ready { watch_id: WatchId(id), handle, readiness })
            }
            (KIND_TIMER, 0) if handle == 0 && readiness.is_empty() => {
                Ok(PollEvent::Timer { timer_id: TimerId(id), at: MonoNs(data) })
            }
            _ => Err(BadPollReply::Value),
        }
    }
}
