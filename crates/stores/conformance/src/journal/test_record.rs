//! Records for tests: a number, a writer, and bytes that no other record has. No engine looks into a record, so these
//! need not be what `store-journal` writes; only their tips follow one another as there.

use bytes::Bytes;
use millrace_journal::{Placing, Tip};

use crate::model::Draw;

/// Number, writer and tip: the least that tells two records apart.
const HEADER_BYTES: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRecord {
    pub n: u64,
    pub prev: Tip,
    pub tip: Tip,
    pub bytes: Bytes,
}

impl TestRecord {
    /// Makes a record of at least `size` bytes. The same arguments make the same record; records of different writers
    /// are different.
    pub fn new(n: u64, prev: Tip, writer: u64, size: usize) -> TestRecord {
        let mut draw = Draw(n ^ writer.rotate_left(32) ^ u64::from_le_bytes(half(prev)));
        let mut tip = [0; 16];
        tip[..8].copy_from_slice(&draw.next().to_le_bytes());
        tip[8..].copy_from_slice(&draw.next().to_le_bytes());
        let mut bytes = Vec::with_capacity(size.max(HEADER_BYTES) + 8);
        bytes.extend_from_slice(&n.to_le_bytes());
        bytes.extend_from_slice(&writer.to_le_bytes());
        bytes.extend_from_slice(&tip);
        // Random bytes, so that an engine that compresses gains nothing and every byte value occurs.
        while bytes.len() < size {
            bytes.extend_from_slice(&draw.next().to_le_bytes());
        }
        bytes.truncate(size.max(HEADER_BYTES));
        TestRecord { n, prev, tip: Tip(tip), bytes: bytes.into() }
    }

    /// Returns the tip that stands in the bytes of a record.
    pub fn tip_of(bytes: &[u8]) -> Tip {
        let mut tip = [0; 16];
        tip.copy_from_slice(&bytes[16..HEADER_BYTES]);
        Tip(tip)
    }

    pub fn placing(&self) -> Placing<'_> {
        Placing { n: self.n, prev: self.prev, tip: self.tip, record: &self.bytes, settles: &[] }
    }
}

fn half(tip: Tip) -> [u8; 8] {
    let mut half = [0; 8];
    half.copy_from_slice(&tip.0[..8]);
    half
}

/// Where a journal ends: makes the records that may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestChain {
    pub n: u64,
    pub tip: Tip,
}

impl TestChain {
    pub const START: TestChain = TestChain { n: 0, tip: Tip::START };

    /// Makes a record that may follow, and leaves the end where it is.
    pub fn candidate(&self, writer: u64, size: usize) -> TestRecord {
        TestRecord::new(self.n + 1, self.tip, writer, size)
    }

    /// Moves the end behind a record that was placed.
    pub fn advance(&mut self, record: &TestRecord) {
        *self = TestChain { n: record.n, tip: record.tip };
    }
}
