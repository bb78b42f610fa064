//! The write-ahead log: whether it continues behind the frame where SQLite stops reading it.
//!
//! SQLite takes the first frame with a wrong checksum for the end of the log and says nothing. Mostly that is right: a
//! crash leaves frames of a commit that was never finished, and a log that starts over leaves frames of the previous
//! round, which have other salts. Whole commits behind a broken frame are neither. Each checksum follows from the
//! stored checksum of the frame before, so even behind a broken frame one can tell whether a frame is whole.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use millrace_model::Findings;

use crate::locks::lock_folder;

const HEAD_BYTES: usize = 32;
const FRAME_HEAD_BYTES: usize = 24;
/// The lowest bit of the magic number says which byte order the checksums use.
const MAGIC: u32 = 0x377f_0682;
const PAGE_BYTES_MAX: u32 = 65_536;
/// A single commit behind a broken frame may be the one that a power failure tore: it was never confirmed.
const COMMITS_MIN: u64 = 2;

/// Checks the log, but only while no process has the store open: frames that are being written look broken.
pub(super) fn check(path: &Path, findings: &mut Findings) {
    let wal = lock_folder::beside(path, "-wal");
    let Ok(Some(_alone)) = alone(path) else { return };
    // Without a log there is nothing to check; SQLite reports an unreadable one better.
    let Ok(file) = File::open(&wal) else { return };
    let Ok(Some(Behind { frame, commits })) = behind(BufReader::new(file)) else { return };
    let broken = if frame == 0 { "its head".to_owned() } else { format!("frame {frame}") };
    findings.note(
        wal.display().to_string(),
        format!(
            "has {commits} whole commits behind {broken}, which is damaged: SQLite reads none of them. Commits \
             that the database does not have are lost, unless the machine lost power before they were confirmed"
        ),
        "copy the three files away before the store is opened again, and compare with a backup",
    );
}

/// Takes both locks and returns them if no process has the store open; the gate must be dropped last. A store without
/// lock files was never opened by a server.
fn alone(path: &Path) -> io::Result<Option<Vec<File>>> {
    let folder = lock_folder::folder(path);
    if !fs::exists(&folder)? {
        return Ok(Some(Vec::new()));
    }
    let (gate, open) = (File::open(folder.join("gate"))?, File::open(folder.join("open"))?);
    gate.lock()?;
    Ok(open.try_lock().is_ok().then(|| vec![open, gate]))
}

/// How many whole commits SQLite does not read, and the frame where it stops, counted from 1; 0 is the head.
#[derive(Debug, PartialEq, Eq)]
struct Behind {
    frame: u64,
    commits: u64,
}

fn behind(mut wal: impl Read) -> io::Result<Option<Behind>> {
    let mut head = [0; HEAD_BYTES];
    if !fill(&mut wal, &mut head)? {
        return Ok(None);
    }
    let (magic, page_bytes) = (word(&head, 0), word(&head, 2));
    if magic & !1 != MAGIC || !page_bytes.is_power_of_two() || !(512..=PAGE_BYTES_MAX).contains(&page_bytes) {
        // Without a valid head the format of the rest is unknown.
        return Ok(None);
    }
    let sums = Sums { big_endian: magic & 1 == 1 };
    let is_head_whole = sums.of((0, 0), &head[..24]) == pair(&head, 6);
    let mut salts = is_head_whole.then(|| pair(&head, 4));
    let mut broken_at = (!is_head_whole).then_some(0);
    let mut sum = pair(&head, 6);
    let mut frame = vec![0; FRAME_HEAD_BYTES + page_bytes as usize];
    let (mut number, mut commits) = (0, 0);
    while fill(&mut wal, &mut frame)? {
        number += 1;
        // If the head is broken, the first frame says which salts this round has.
        if *salts.get_or_insert(pair(&frame, 2)) != pair(&frame, 2) {
            break;
        }
        let stored = pair(&frame, 4);
        let expected = sums.of(sums.of(sum, &frame[..8]), &frame[FRAME_HEAD_BYTES..]);
        let is_whole = expected == stored;
        if !is_whole && broken_at.is_none() {
            broken_at = Some(number);
        }
        // The second word of a commit's last frame is the size of the database; in other frames it is 0.
        if is_whole && broken_at.is_some() && word(&frame, 1) != 0 {
            commits += 1;
        }
        sum = stored;
    }
    let found = broken_at.filter(|_| commits >= COMMITS_MIN);
    Ok(found.map(|frame| Behind { frame, commits }))
}

/// The checksum algorithm of SQLite's file format, section 4.2.
struct Sums {
    big_endian: bool,
}

impl Sums {
    fn of(&self, from: (u32, u32), bytes: &[u8]) -> (u32, u32) {
        let read = |at: &[u8]| {
            let four = [at[0], at[1], at[2], at[3]];
            if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        bytes.chunks_exact(8).fold(from, |(mut one, mut two), eight| {
            one = one.wrapping_add(read(&eight[..4])).wrapping_add(two);
            two = two.wrapping_add(read(&eight[4..])).wrapping_add(one);
            (one, two)
        })
    }
}

/// Returns the word at this index of a head, which is always big-endian.
fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(4 * at..4 * at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_be_bytes)
}

fn pair(bytes: &[u8], at: usize) -> (u32, u32) {
    (word(bytes, at), word(bytes, at + 1))
}

/// Fills `bytes`. Returns false if the file ends before.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = FRAME_HEAD_BYTES + 4096;

    /// Returns a log of eight commits, and the byte at which each of them ends.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.pragma_update(None, "journal_mode", "WAL").unwrap();
        conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        conn.execute_batch("CREATE TABLE t (a)").unwrap();
        let wal = folder.path().join("x.db-wal");
        let mut ends = Vec::new();
        for n in 0..8 {
            conn.execute("INSERT INTO t VALUES (zeroblob(?1))", [6000 + n]).unwrap();
            ends.push(wal.metadata().unwrap().len() as usize);
        }
        (std::fs::read(&wal).unwrap(), ends)
    }

    fn found(log: &[u8]) -> Option<Behind> {
        behind(log).unwrap()
    }

    #[test]
    fn commits_behind_a_broken_frame_are_found() {
        let (log, ends) = log();
        assert_eq!(found(&log), None);
        for at in [ends[2] + 3, ends[2] + FRAME_HEAD_BYTES, ends[2] + FRAME - 1] {
            let mut log = log.clone();
            log[at] ^= 1;
            let frame = ((ends[2] - HEAD_BYTES) / FRAME) as u64 + 1;
            assert_eq!(found(&log), Some(Behind { frame, commits: 5 }), "a flipped bit at {at}");
        }
        let mut torn = log.clone();
        torn[ends[2]..ends[2] + FRAME].fill(0);
        assert_eq!(found(&torn), None, "a frame without salts is the end");
        let mut headless = log.clone();
        headless[28] ^= 1;
        assert_eq!(found(&headless).map(|found| found.frame), Some(0));
    }

    /// The leftovers of a crash are no damage.
    #[test]
    fn an_unfinished_end_is_no_damage() {
        let (log, ends) = log();
        for cut in [0, 31, 32, 40, ends[0] + 1, ends[6] + FRAME, ends[7] - 1, ends[7] - FRAME] {
            assert_eq!(found(&log[..cut]), None, "cut at {cut}");
        }
        // A power failure tore the last commit.
        let mut torn = log.clone();
        torn[ends[6] + 100] ^= 1;
        assert_eq!(found(&torn), None);
        // Frames of the previous round behind the end of this one.
        let mut older = log.clone();
        let mut at = ends[2];
        while at < older.len() {
            older[at + 8] ^= 1;
            at += FRAME;
        }
        assert_eq!(found(&older), None);
        for noise in [vec![0; 100_000], vec![0xff; 100_000]] {
            assert_eq!(found(&noise), None);
        }
    }
}
