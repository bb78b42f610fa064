//! The rate of rows that are inserted by hand, many in one statement: what a load is compared with on engines that have
//! tables.

use std::time::{Duration, Instant};

use super::raw::UniqueIds;
use super::stage::EngineStage;
use crate::error::BenchError;
use crate::probe::slice_time;

/// Rows of a statement.
pub(super) const ROWS: usize = 256;

/// Rows that are inserted by hand, where the engine has tables.
pub(super) struct RowRate {
    ids: UniqueIds,
    rows: usize,
    busy: Duration,
}

impl RowRate {
    pub(super) fn new(ids: UniqueIds) -> RowRate {
        RowRate { ids, rows: 0, busy: Duration::ZERO }
    }

    pub(super) fn slice(&mut self, stage: &mut EngineStage<'_>) -> Result<(), BenchError> {
        let time = slice_time(stage.options);
        let Some(tables) = stage.place.raw.sql() else { return Ok(()) };
        let began = Instant::now();
        while began.elapsed() < time {
            tables.insert_rows(&stage.payloads.take(ROWS), self.ids)?;
            self.rows += ROWS;
        }
        self.busy += began.elapsed();
        Ok(())
    }

    pub(super) fn rate(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.rows as f64 / self.busy.as_secs_f64())
    }
}
