//! Folding: runs that are known only from `commits` and from memory become rows of `loc`, a few at a time.

use std::collections::VecDeque;

use millrace_store::StoreError;

use crate::dedupe::saved_ids::save_ids;
use crate::error::Attempt;
use crate::opening::load;
use crate::rows::loc::Loc;
use crate::store_core::StoreCore;
use crate::writing::commit::HOUSEKEEPING;
use crate::writing::transaction::{Change, Writer};

/// Rows of `loc` written by a transaction: few enough that a publisher waiting behind it does not notice.
const ROWS_PER_TRANSACTION: usize = 32;

/// Streams still to be folded. When none is left, the commits up to `through` are not needed to find events any more.
#[derive(Debug)]
pub(crate) struct FoldJob {
    pub(crate) through: u64,
    queue: VecDeque<i64>,
}

impl StoreCore {
    /// Returns whether the unfolded events exceed `times` the limits of the options.
    pub(crate) fn fold_is_due(&self, times: u64) -> bool {
        let index = self.index();
        index.unfolded_events >= self.options.fold_events.saturating_mul(times)
            || index.unfolded_bytes >= self.options.fold_bytes.saturating_mul(times)
    }

    /// Does a slice of the job under way, or of a new one. Returns how many rows were written.
    pub(crate) fn fold_slice(&self, writer: &mut Writer, rows_max: usize) -> Result<usize, StoreError> {
        let mut job = writer.fold.take().unwrap_or_else(|| self.new_job());
        let rows = self.transact(writer, HOUSEKEEPING, |writer| {
            self.dedupe_catch_up(writer)?;
            let mut change = Change::default();
            let mut budget = rows_max.clamp(1, ROWS_PER_TRANSACTION);
            let mut rows = 0;
            while budget > 0 {
                let Some(id) = job.queue.front().copied() else { break };
                let written = self.fold_stream(writer, id, budget, &mut change)?;
                budget -= written;
                rows += written;
                if budget > 0 {
                    job.queue.pop_front();
                }
            }
            if job.queue.is_empty() {
                self.forget_old_ids(writer)?;
            }
            Ok((rows, change))
        })?;
        if job.queue.is_empty() {
            writer.prune_through = job.through;
            writer.forgets_tombstones = true;
        } else {
            writer.fold = Some(job);
        }
        Ok(rows)
    }

    fn new_job(&self) -> FoldJob {
        let index = self.index();
        let mut queue: Vec<i64> =
            index.all().filter(|state| !state.runs.is_empty()).map(|state| state.row.id).collect();
        queue.sort_unstable();
        FoldJob { through: index.last, queue: queue.into() }
    }

    /// Folds the oldest runs of a stream into at most `rows_max` rows. Fewer rows than that mean that no run is left.
    pub(crate) fn fold_stream(
        &self,
        writer: &Writer,
        id: i64,
        rows_max: usize,
        change: &mut Change,
    ) -> Attempt<usize> {
        let mut locs: Vec<Loc> = Vec::new();
        let mut row = {
            let index = self.index();
            let Some(state) = index.by_id(id) else { return Ok(0) };
            for run in &state.runs {
                let is_full = locs.len() == rows_max;
                match locs.last_mut() {
                    Some(loc) if loc.count + run.count <= self.options.loc_events_max => loc.extend(run),
                    _ if is_full => break,
                    _ => locs.push(Loc::of(run)),
                }
            }
            state.row.clone()
        };
        let Some(last) = locs.last() else { return Ok(0) };
        row.folded = last.end();
        row.last_ts = last.last_ts;
        row.bytes += locs.iter().map(|loc| loc.bytes).sum::<u64>();
        for loc in &locs {
            loc.insert(&writer.conn, id)?;
        }
        save_ids(writer, &self.dedupe(), &locs)?;
        load::update_stream(&writer.conn, &row)?;
        change.touch(row);
        Ok(locs.len())
    }
}
