//! The trace that `recorder.c` writes: the changes of a store's files, in one order for all processes.

use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

const MAGIC: u32 = 0x544f_4c53;
const HEAD_BYTES: usize = 40;

/// A successful system call.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub what: What,
    /// The path as the recorder saw it; of a rename, the old path.
    pub path: String,
    pub inode: u64,
    /// Where the record ends in the trace. Cuts and confirmed facts are at such positions.
    pub end: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Opened for writing, and created if it did not exist.
    Opened,
    Written {
        at: u64,
        /// The range in the bytes of the trace.
        data: Range<usize>,
    },
    Resized {
        bytes: u64,
    },
    Renamed {
        to: String,
    },
    Unlinked,
    SyncBegun {
        number: u64,
    },
    SyncEnded {
        number: u64,
    },
    FolderMade,
}

/// A whole trace file.
pub struct Trace {
    pub bytes: Vec<u8>,
    pub records: Vec<Record>,
}

impl Trace {
    pub fn read(path: &Path) -> Trace {
        let bytes = std::fs::read(path).expect("a trace");
        let (records, whole) = parse(&bytes);
        assert_eq!(whole, bytes.len(), "the trace has a torn record, and no process was killed");
        Trace { bytes, records }
    }

    /// Reads a trace and cuts off the last record if the last process was killed while writing it.
    pub fn mend(path: &Path) -> Trace {
        let mut bytes = std::fs::read(path).expect("a trace");
        let (records, whole) = parse(&bytes);
        bytes.truncate(whole);
        let file = OpenOptions::new().write(true).open(path).expect("a trace");
        file.set_len(whole as u64).expect("a file that can be cut");
        Trace { bytes, records }
    }

    pub fn data(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }
}

/// Returns every whole record, and where the last of them ends.
fn parse(bytes: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some(record) = parse_one(bytes, at) {
        at = record.end as usize;
        records.push(record);
    }
    (records, at)
}

fn parse_one(bytes: &[u8], at: usize) -> Option<Record> {
    let head = bytes.get(at..at + HEAD_BYTES)?;
    let short = |from: usize| u32::from_ne_bytes(head[from..from + 4].try_into().expect("4 bytes"));
    let long = |from: usize| u64::from_ne_bytes(head[from..from + 8].try_into().expect("8 bytes"));
    assert_eq!(short(0), MAGIC, "no record begins at {at} of the trace");
    let (kind, inode, number) = (short(4), long(8), long(16));
    let path_end = at + HEAD_BYTES + short(24) as usize;
    let target_end = path_end + short(28) as usize;
    let end = target_end + long(32) as usize;
    if end > bytes.len() {
        return None;
    }
    let text = |range: Range<usize>| String::from_utf8(bytes[range].to_vec()).expect("paths are UTF-8");
    let what = match kind {
        1 => What::Opened,
        2 => What::Written { at: number, data: target_end..end },
        3 => What::Resized { bytes: number },
        4 => What::Renamed { to: text(path_end..target_end) },
        5 => What::Unlinked,
        6 => What::SyncBegun { number },
        7 => What::SyncEnded { number },
        8 => What::FolderMade,
        kind => panic!("kind {kind} of a record is not known"),
    };
    Some(Record { what, path: text(at + HEAD_BYTES..path_end), inode, end: end as u64 })
}

/// Appends a change that a killed process made but did not record.
pub fn append(path: &Path, kind: u32, inode: u64, number: u64, name: &str, data: &[u8]) {
    let mut record = Vec::new();
    for part in [MAGIC, kind] {
        record.extend_from_slice(&part.to_ne_bytes());
    }
    for part in [inode, number] {
        record.extend_from_slice(&part.to_ne_bytes());
    }
    record.extend_from_slice(&(name.len() as u32).to_ne_bytes());
    record.extend_from_slice(&0u32.to_ne_bytes());
    record.extend_from_slice(&(data.len() as u64).to_ne_bytes());
    record.extend_from_slice(name.as_bytes());
    record.extend_from_slice(data);
    let mut file = OpenOptions::new().append(true).open(path).expect("a trace");
    file.write_all(&record).expect("a disk with room");
}

pub const OPENED: u32 = 1;
pub const WRITTEN: u32 = 2;
pub const RESIZED: u32 = 3;
pub const UNLINKED: u32 = 5;
pub const SYNC_BEGUN: u32 = 6;
pub const SYNC_ENDED: u32 = 7;
pub const FOLDER_MADE: u32 = 8;
