//! Picks the moments of the power cuts: anywhere, and more often where damage is likely.

use crate::dice::Dice;
use crate::disk::Lie;
use crate::facts::Ledger;
use crate::trace::{Record, Trace, What};

const WAL_HEADER_BYTES: usize = 32;

/// Moments in the trace, as indexes of the last record before the cut.
pub struct Cuts {
    records: usize,
    restarts: usize,
    /// Changes after the new header of a restarted WAL, up to the next sync: there old and new frames meet.
    after_restarts: Vec<usize>,
    syncs: Vec<usize>,
    /// Changes of file names; a restore consists of a few of them.
    names: Vec<usize>,
    confirmed: Vec<usize>,
}

impl Cuts {
    pub fn of(trace: &Trace, ledger: &Ledger) -> Cuts {
        let records = &trace.records;
        let all = |is: &dyn Fn(&Record) -> bool| {
            let found = records.iter().enumerate().filter(|(_, record)| is(record));
            found.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let is_sync = |record: &Record| matches!(record.what, What::SyncEnded { .. });
        let is_name = |record: &Record| matches!(record.what, What::Renamed { .. } | What::Unlinked);
        let at = |position: &u64| records.partition_point(|record| record.end < *position);
        let restarts = all(&is_wal_header);
        Cuts {
            records: records.len(),
            restarts: restarts.len(),
            after_restarts: restarts.iter().flat_map(|header| until_sync(records, *header)).collect(),
            syncs: all(&is_sync),
            names: all(&is_name),
            confirmed: ledger.positions().iter().map(at).collect(),
        }
    }

    /// Returns how often the WAL was restarted at its beginning.
    pub fn restarts(&self) -> usize {
        self.restarts
    }

    /// Draws the moments to cut, where a lie of the disk would show; `Lie::None` is an honest disk.
    pub fn draw(&self, count: u64, lie: Lie, dice: &mut Dice) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..count)
            .map(|n| match (lie, n % 6) {
                (Lie::WalHeader, _) | (Lie::None, 0 | 1) => any(&self.after_restarts, dice),
                (Lie::WalEvery(_), _) | (Lie::None, 2) => any(&self.confirmed, dice),
                // The change before a sync, or the sync itself.
                (Lie::None, 3) => any(&self.syncs, dice).saturating_sub(dice.below(3) as usize),
                (Lie::None, 4) => any(&self.names, dice) + dice.below(3) as usize,
                // While the store is being created, or anywhere.
                (Lie::None, _) if dice.below(2) == 0 => dice.below(self.confirmed[0] as u64) as usize,
                (Lie::None, _) => dice.below(self.records as u64) as usize,
            })
            .map(|cut| cut.min(self.records - 1))
            .collect();
        cuts.sort_unstable();
        cuts
    }
}

/// Counts headers of the WAL that were not synced before the first frame after them, as with `synchronous=OFF`. A cut
/// there finds old frames under an old header. Few images show that, so the trace is checked as well.
pub fn unsynced_headers(trace: &Trace) -> usize {
    let records = &trace.records;
    let headers = records.iter().enumerate().filter(|(_, record)| is_wal_header(record));
    let is_next = |record: &&Record| {
        is_wal(record) && matches!(record.what, What::Written { .. } | What::SyncEnded { .. })
    };
    let next = |header: usize| records[header + 1..].iter().find(is_next);
    // A process that was killed after writing its header wrote no frame: the next process begins with a header of its
    // own.
    let unsynced = |record: &Record| matches!(record.what, What::Written { .. }) && !is_wal_header(record);
    headers.filter(|(at, _)| next(*at).is_some_and(unsynced)).count()
}

/// Returns the records from the first frame after a header up to the sync that makes it durable.
fn until_sync(records: &[Record], header: usize) -> impl Iterator<Item = usize> {
    let is_frame = |record: &Record| matches!(record.what, What::Written { .. }) && is_wal(record);
    let is_sync = |record: &Record| matches!(record.what, What::SyncEnded { .. }) && is_wal(record);
    let next = |from: usize, is: &dyn Fn(&Record) -> bool| {
        records[from..].iter().position(is).map_or(records.len(), |ahead| from + ahead)
    };
    let first = next(header + 1, &is_frame);
    first..next(first, &is_sync)
}

fn any(places: &[usize], dice: &mut Dice) -> usize {
    places[dice.below(places.len() as u64) as usize]
}

fn is_wal_header(record: &Record) -> bool {
    let is_header = matches!(&record.what, What::Written { at: 0, data } if data.len() == WAL_HEADER_BYTES);
    is_header && is_wal(record)
}

fn is_wal(record: &Record) -> bool {
    record.path.ends_with("-wal")
}
