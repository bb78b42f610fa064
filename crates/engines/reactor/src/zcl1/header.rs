//! The header: the first 24 bytes of every frame.

use thiserror::Error;

pub const MAGIC: [u8; 4] = *b"ZCL1";
pub const VERSION: u16 = 1;
pub const HEADER_BYTES: usize = 24;
/// Longest frame, header included. The reference's buffers hold no longer ones.
pub const FRAME_BYTES_MAX: usize = 65_536;

pub const STATUS_REQUEST: u32 = 0;
/// Same value as [`STATUS_REQUEST`]; the direction tells requests and errors apart.
pub const STATUS_ERROR: u32 = 0;
pub const STATUS_OK: u32 = 1;

/// All fields but the magic. A decoded header may still have invalid fields: see [`Header::check_request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u16,
    pub op: u16,
    /// Request id, chosen by the author of the request; replies repeat it.
    pub rid: u32,
    pub status: u32,
    pub reserved: u32,
    pub payload_bytes: u32,
}

/// A field of a header has a value that the protocol does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderFault {
    #[error("version must be 1")]
    Version,
    #[error("status must be 0")]
    RequestStatus,
    #[error("status must be 0 or 1")]
    ReplyStatus,
    #[error("reserved must be 0")]
    Reserved,
}

impl Header {
    fn new(op: u16, rid: u32, status: u32) -> Header {
        Header { version: VERSION, op, rid, status, reserved: 0, payload_bytes: 0 }
    }

    pub fn request(op: u16, rid: u32) -> Header {
        Header::new(op, rid, STATUS_REQUEST)
    }

    pub fn ok(op: u16, rid: u32) -> Header {
        Header::new(op, rid, STATUS_OK)
    }

    pub fn error(op: u16, rid: u32) -> Header {
        Header::new(op, rid, STATUS_ERROR)
    }

    /// Returns the length of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES.saturating_add(self.payload_bytes as usize)
    }

    /// Returns the header in these bytes; `None` if they do not begin with [`MAGIC`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let [m0, m1, m2, m3, v0, v1, o0, o1, r0, r1, r2, r3, rest @ ..] = *bytes;
        let [s0, s1, s2, s3, z0, z1, z2, z3, p0, p1, p2, p3] = rest;
        ([m0, m1, m2, m3] == MAGIC).then(|| Header {
            version: u16::from_le_bytes([v0, v1]),
            op: u16::from_le_bytes([o0, o1]),
            rid: u32::from_le_bytes([r0, r1, r2, r3]),
            status: u32::from_le_bytes([s0, s1, s2, s3]),
            reserved: u32::from_le_bytes([z0, z1, z2, z3]),
            payload_bytes: u32::from_le_bytes([p0, p1, p2, p3]),
        })
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.op.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rid.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.status.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.reserved.to_le_bytes());
        bytes[20..].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes
    }

    /// Checks the fields of a request that are the same for every capability. The reference ignores status and
    /// reserved; Millrace answers a wrong value with an error frame.
    ///
    /// # Errors
    ///
    /// The first [`HeaderFault`] in the order of the fields.
    pub fn check_request(&self) -> Result<(), HeaderFault> {
        self.check(HeaderFault::RequestStatus, &[STATUS_REQUEST])
    }

    /// Checks the fields of a reply or an event, for clients.
    ///
    /// # Errors
    ///
    /// The first [`HeaderFault`] in the order of the fields.
    pub fn check_reply(&self) -> Result<(), HeaderFault> {
        self.check(HeaderFault::ReplyStatus, &[STATUS_OK, STATUS_ERROR])
    }

    fn check(&self, status_fault: HeaderFault, statuses: &[u32]) -> Result<(), HeaderFault> {
        if self.version != VERSION {
            return Err(HeaderFault::Version);
        }
        if !statuses.contains(&self.status) {
            return Err(status_fault);
        }
        if self.reserved != 0 {
            return Err(HeaderFault::Reserved);
        }
        Ok(())
    }
}
