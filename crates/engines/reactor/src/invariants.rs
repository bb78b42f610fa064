//! Invariants that hold between two calls of the engine. For tests and simulation: a check reads every watch and every
//! timer.

use thiserror::Error;

use crate::sources::SourceKind;
use crate::sys_loop::SysLoop;

/// An invariant that does not hold: a bug of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    #[error("the watches by id, by slot and by handle are {by_id}, {by_slot} and {by_handle}")]
    WatchCounts { by_id: usize, by_slot: usize, by_handle: usize },
    #[error("watch {watch_id} is in the ready queue, but has nothing to report")]
    QueuedInVain { watch_id: u64 },
    #[error("watch {watch_id} is on a handle that is ready by computation, but is not in the ready queue")]
    NotQueued { watch_id: u64 },
    #[error("the ready queue and the watches in it do not agree")]
    ReadyQueue,
    #[error("{counted} sources are polled, but the engine counts {known}")]
    PolledCount { counted: usize, known: usize },
    #[error("the timers by id and by due time differ")]
    Timers,
    #[error("{name} is {value}, above its limit of {max}")]
    AboveLimit { name: &'static str, value: usize, max: usize },
}

impl SysLoop {
    /// Checks the invariants of the engine.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        self.check_limits()?;
        self.check_counts()?;
        self.check_queue()?;
        if self.timers.is_consistent() { Ok(()) } else { Err(Violation::Timers) }
    }

    fn check_limits(&self) -> Result<(), Violation> {
        let gauges = self.gauges();
        let limits = [
            ("watches_max", gauges.watches, self.limits.watches_max),
            ("timers_max", gauges.timers, self.limits.timers_max),
            ("output_bytes_max", gauges.output_bytes, self.limits.output_bytes_max),
            ("frame_bytes_max", gauges.input_bytes, self.limits.frame_bytes_max),
        ];
        match limits.into_iter().find(|(_, value, max)| value > max) {
            None => Ok(()),
            Some((name, value, max)) => Err(Violation::AboveLimit { name, value, max }),
        }
    }

    fn check_counts(&self) -> Result<(), Violation> {
        let table = &self.watches;
        let by_handle = table.sources.iter().map(|(_, source)| source.watches.len()).sum();
        let (by_id, by_slot) = (table.by_id.len(), table.watches.len());
        if by_id != by_slot || by_slot != by_handle {
            return Err(Violation::WatchCounts { by_id, by_slot, by_handle });
        }
        let is_polled = |kind| matches!(kind, SourceKind::Polled | SourceKind::EdgePolled);
        match table.sources.iter().filter(|(_, source)| is_polled(source.kind)).count() {
            counted if counted == table.polled => Ok(()),
            counted => Err(Violation::PolledCount { counted, known: table.polled }),
        }
    }

    fn check_queue(&self) -> Result<(), Violation> {
        let table = &self.watches;
        let mut queued = 0;
        for (key, watch) in table.watches.iter() {
            let watch_id = watch.id.0.get();
            let Some(source) = table.sources.get(watch.source) else { return Err(Violation::ReadyQueue) };
            let has_report = !source.state.reported_to(watch.interest).is_empty();
            match watch.ticket {
                Some(ticket) if table.ready.get(ticket) != Some(key) => return Err(Violation::ReadyQueue),
                Some(_) if !has_report => return Err(Violation::QueuedInVain { watch_id }),
                Some(_) => queued += 1,
                None if has_report && source.kind == SourceKind::Computed => {
                    return Err(Violation::NotQueued { watch_id });
                }
                None => {}
            }
        }
        if queued == table.ready.len() { Ok(()) } else { Err(Violation::ReadyQueue) }
    }
}
