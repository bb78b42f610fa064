//! `zi_ctl`: one request frame in, one reply frame out.

use millrace_reactor::zcl1::{ErrorPayload, FieldError, FieldReader, Frame, Header};
use millrace_reactor::{HandleNumber, ZabiError};

use super::{Process, returned};
use crate::catalog::encode_list;
use crate::handle::HandleOpError;
use crate::memory::GuestMemory;
use crate::os_poller::IoEffect;

const OP_CAPS_LIST: u16 = 1;
const OP_HANDLE_OP: u16 = 4;
const HANDLE_OP_VERSION: u32 = 1;
const HANDLE_OP_SHUT_DOWN_WRITING: u32 = 1;

/// An error reply: trace and message.
struct ControlError(&'static str, String);

impl ControlError {
    fn new(trace: &'static str, message: &str) -> ControlError {
        ControlError(trace, message.to_owned())
    }

    fn handle_op(message: &str) -> ControlError {
        ControlError::new("t_ctl_bad_handle_op", message)
    }
}

impl Process {
    /// Executes a control request and writes its reply. Returns the length of the reply; -1 if there is no room for it,
    /// as the reference does.
    pub fn zi_ctl(
        &mut self,
        memory: &mut dyn GuestMemory,
        request: u64,
        request_bytes: u32,
        reply: u64,
        reply_bytes_max: u32,
    ) -> i32 {
        returned(self.control(memory, (request, request_bytes), (reply, reply_bytes_max)))
    }

    fn control(
        &mut self,
        memory: &mut dyn GuestMemory,
        request: (u64, u32),
        reply: (u64, u32),
    ) -> Result<usize, ZabiError> {
        if self.is_ended() {
            return Err(ZabiError::Closed);
        }
        let frame = self.control_reply(memory.bytes(request.0, request.1)?);
        let to = memory.bytes_mut(reply.0, reply.1)?;
        to.get_mut(..frame.len()).ok_or(ZabiError::Invalid)?.copy_from_slice(&frame);
        Ok(frame.len())
    }

    /// Returns the bytes of the reply frame.
    fn control_reply(&mut self, request: &[u8]) -> Vec<u8> {
        let (header, result) = match Frame::decode(request) {
            Ok(frame) if frame.header.check_request().is_ok() => {
                (frame.header, self.control_op(frame.header.op, frame.payload))
            }
            _ => (Header::request(0, 0), Err(ControlError::new("t_ctl_bad_frame", "parse"))),
        };
        let (header, payload) = match result {
            Ok(payload) => (Header::ok(header.op, header.rid), payload),
            Err(ControlError(trace, message)) => {
                let mut payload = Vec::new();
                ErrorPayload { trace, message: &message, detail: "" }.encode(&mut payload);
                (Header::error(header.op, header.rid), payload)
            }
        };
        // A list of nine capabilities and an error text are far shorter than the longest frame.
        Frame::encode(header, &payload).unwrap_or_default()
    }

    fn control_op(&mut self, op: u16, payload: &[u8]) -> Result<Vec<u8>, ControlError> {
        match op {
            OP_CAPS_LIST if payload.is_empty() => Ok(encode_list(&self.granted, self.caps_list)),
            OP_CAPS_LIST => Err(ControlError::new("t_ctl_bad_frame", "payload must be empty")),
            OP_HANDLE_OP => self.handle_op(payload),
            _ => Err(ControlError::new("t_ctl_unknown_op", "unknown operation")),
        }
    }

    fn handle_op(&mut self, payload: &[u8]) -> Result<Vec<u8>, ControlError> {
        let [version, handle, op, reserved] =
            decode_handle_op(payload).map_err(|_| ControlError::handle_op("short payload"))?;
        if version != HANDLE_OP_VERSION {
            return Err(ControlError::handle_op("bad version"));
        }
        if reserved != 0 {
            return Err(ControlError::handle_op("reserved must be 0"));
        }
        let number =
            HandleNumber::new(handle).filter(|number| number.get() < 3 || self.handles.contains(*number));
        let number = number.ok_or_else(|| ControlError::new("t_ctl_bad_handle", "unknown handle"))?;
        let result = match op {
            HANDLE_OP_SHUT_DOWN_WRITING => {
                let done = self.handles.with_handle(number, |handle, _| handle.shut_down_writing());
                done.unwrap_or(Err(HandleOpError::NotSupported))
            }
            _ => Err(HandleOpError::NotSupported),
        };
        self.was_used(number, IoEffect::Other);
        match result {
            Ok(()) => Ok(Vec::new()),
            Err(HandleOpError::NotSupported) => {
                Err(ControlError::new("t_ctl_nosys", "handle op not supported"))
            }
            Err(HandleOpError::Failed(code)) => {
                Err(ControlError("t_ctl_handle_op_failed", format!("handle op failed: {}", code.code())))
            }
        }
    }
}

/// Decodes the payload of HANDLE_OP. The length is exact: a longer payload is refused with the same words as a shorter
/// one.
fn decode_handle_op(payload: &[u8]) -> Result<[u32; 4], FieldError> {
    let mut fields = FieldReader::new(payload);
    let words = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
    fields.finish()?;
    Ok(words)
}
