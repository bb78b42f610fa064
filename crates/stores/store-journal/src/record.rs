//! The bytes of a record: everything that one commit came to, whole or not at all.
//!
//! `docs/formats/journal.md` specifies them; a change here is a change of the format.
//!
//! | field | bytes |
//! |---|---|
//! | `MLJ1` | 4 |
//! | format | 1 |
//! | flags (bit 0: the body is LZ4) | 1 |
//! | writer id | 16 |
//! | nonce | 8 |
//! | n | 8 |
//! | term | 8 |
//! | time | 8 |
//! | prev | 16 |
//! | body length | 4 |
//! | body | |
//! | tip | 16 |
//!
//! Numbers are little-endian. The tip is the first 16 bytes of the SHA-256 of everything before it: checksum, identity
//! of the history, and `prev` of the next record.

mod body;
mod cursor;
mod spaces;

use bytes::Bytes;
use millrace_model::Timestamp;
use millrace_store::{RecordedChange, Tip};
use sha2::{Digest, Sha256};

pub use cursor::Malformed;

const MAGIC: &[u8; 4] = b"MLJ1";
/// The format that this build writes, and the newest one it reads.
pub const FORMAT: u8 = 1;
const FLAG_LZ4: u8 = 1;
const HEAD_BYTES: usize = 4 + 1 + 1 + 16 + 8 + 8 + 8 + 8 + 16 + 4;
const TIP_BYTES: usize = 16;
/// Bodies below this size are not compressed: the attempt costs more than it saves.
const LZ4_FROM_BYTES: usize = 128;
/// The largest record that is placed or read. A MongoDB document holds 16 MiB; a batch is at most 12 MiB, and rows that
/// claims write are estimated.
pub const RECORD_BYTES_MAX: usize = 15 << 20;
/// The largest body after it was unpacked: a forged length must not make a reader allocate without bound.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A record without its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub head: RecordHead,
    pub changes: Vec<RecordedChange>,
}

/// The fields before the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// The process that placed the record.
    pub writer: u128,
    /// Drawn for every record: a writer that lost an answer finds its own record again by it.
    pub nonce: u64,
    pub n: u64,
    /// The term of the leader that placed the record; 0 without one.
    pub term: u64,
    /// The wall clock of the writer, for people. Nothing is decided by it.
    pub time: Timestamp,
    /// The tip of record `n - 1`.
    pub prev: Tip,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("it has format {found}, this build reads up to {FORMAT}: upgrade this server")]
    NewerFormat { found: u8 },
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl From<Malformed> for RecordError {
    fn from(Malformed(what): Malformed) -> RecordError {
        RecordError::Damaged(what)
    }
}

/// Returns the bytes of a record, and its tip.
pub fn encode(head: &RecordHead, changes: &[RecordedChange]) -> (Vec<u8>, Tip) {
    let plain = body::encode(changes);
    let packed = (plain.len() >= LZ4_FROM_BYTES).then(|| lz4_flex::compress_prepend_size(&plain));
    let (flags, body) = match packed {
        Some(packed) if packed.len() < plain.len() => (FLAG_LZ4, packed),
        _ => (0, plain),
    };
    let mut out = Vec::with_capacity(HEAD_BYTES + body.len() + TIP_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[FORMAT, flags]);
    out.extend_from_slice(&head.writer.to_le_bytes());
    for number in [head.nonce, head.n, head.term, head.time.0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&head.prev.0);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&body);
    let tip = tip_of(&out);
    out.extend_from_slice(&tip.0);
    (out, tip)
}

fn tip_of(bytes: &[u8]) -> Tip {
    let mut tip = [0; TIP_BYTES];
    tip.copy_from_slice(&Sha256::digest(bytes)[..TIP_BYTES]);
    Tip(tip)
}

/// Checks the bytes and returns the fields before the body, and the tip.
pub fn decode_head(bytes: &[u8]) -> Result<(RecordHead, Tip), RecordError> {
    let (head, tip, _, _) = split(bytes)?;
    Ok((head, tip))
}

pub fn decode(bytes: &Bytes) -> Result<(Record, Tip), RecordError> {
    let (head, tip, flags, body) = split(bytes)?;
    let body = bytes.slice_ref(body);
    let plain = match flags & FLAG_LZ4 {
        0 => body,
        _ => unpack(&body)?,
    };
    Ok((Record { head, changes: body::decode(&plain)? }, tip))
}

fn unpack(body: &[u8]) -> Result<Bytes, RecordError> {
    let (size, rest) =
        lz4_flex::block::uncompressed_size(body).map_err(|_| RecordError::Damaged("its LZ4 size"))?;
    if size > BODY_BYTES_MAX {
        return Err(RecordError::Damaged("its LZ4 size"));
    }
    let plain = lz4_flex::decompress(rest, size).map_err(|_| RecordError::Damaged("its LZ4 body"))?;
    Ok(plain.into())
}

fn split(bytes: &[u8]) -> Result<(RecordHead, Tip, u8, &[u8]), RecordError> {
    let damaged = RecordError::Damaged;
    if !bytes.starts_with(MAGIC) {
        return Err(damaged("it does not begin with MLJ1"));
    }
    let format = *bytes.get(4).ok_or(damaged("it is too short"))?;
    if format > FORMAT {
        return Err(RecordError::NewerFormat { found: format });
    }
    if bytes.len() < HEAD_BYTES + TIP_BYTES {
        return Err(damaged("it is too short"));
    }
    let (covered, tip) = bytes.split_at(bytes.len() - TIP_BYTES);
    if tip_of(covered).0 != tip {
        return Err(damaged("its checksum"));
    }
    let mut at = 5;
    let mut take = |count: usize| {
        at += count;
        &covered[at - count..at]
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
    let flags = take(1)[0];
    if flags & !FLAG_LZ4 != 0 {
        return Err(damaged("its flags"));
    }
    let writer = number(take(16));
    let mut next = || number(take(8)) as u64;
    let (nonce, n, term, time) = (next(), next(), next(), Timestamp(next()));
    let mut prev = Tip::START;
    prev.0.copy_from_slice(take(TIP_BYTES));
    let body_bytes = number(take(4)) as usize;
    let body = &covered[HEAD_BYTES..];
    if body.len() != body_bytes {
        return Err(damaged("its length"));
    }
    let mut own = Tip::START;
    own.0.copy_from_slice(tip);
    Ok((RecordHead { writer, nonce, n, term, time, prev }, own, flags, body))
}

#[cfg(test)]
mod tests;
