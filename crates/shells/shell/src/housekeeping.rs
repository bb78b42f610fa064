//! When the store's housekeeping is due, and one slice of it.

use std::time::{Duration, Instant};

use millrace_store::{Store, StoreError};

/// While batches wait, housekeeping pauses this many times as long as its last slice took: it gets a fifth of the
/// writer's time, enough not to fall behind for good, and a batch waits for one slice at most.
const BUSY_PAUSE: u32 = 4;

#[derive(Debug)]
pub struct Housekeeping {
    /// Rows in one slice.
    rows_max: usize,
    /// The pause when the last slice left nothing to do.
    interval: Duration,
    due_at: Instant,
    /// The last slice could not be written. Warned of once, not several times a second.
    failing: bool,
}

/// How a slice ended.
#[derive(Debug)]
pub struct Slice {
    pub rows: usize,
    /// Why nothing was written, if so: the slice is tried again.
    pub deferred_by: Option<StoreError>,
}

impl Housekeeping {
    pub fn new(rows_max: usize, interval: Duration) -> Housekeeping {
        Housekeeping { rows_max, interval, due_at: Instant::now() + interval, failing: false }
    }

    pub fn due_at(&self) -> Instant {
        self.due_at
    }

    /// Leaves the housekeeping to another process for this time.
    pub fn skip(&mut self) {
        self.due_at = Instant::now() + self.interval;
    }

    /// Runs one slice and sets the time of the next. `is_busy` tells whether batches wait.
    ///
    /// # Errors
    ///
    /// Returns failures after which nothing can be written any more.
    pub fn run(&mut self, store: &dyn Store, is_busy: impl FnOnce() -> bool) -> Result<Slice, StoreError> {
        let started = Instant::now();
        let (slice, more) = match store.maintain(self.rows_max) {
            Ok(done) => {
                // A slice without work does not count as a success: the next one may fail as the last one did.
                self.failing &= done.rows == 0;
                (Slice { rows: done.rows, deferred_by: None }, done.more)
            }
            Err(StoreError::Unreadable(cause)) => {
                let reason = cause.text();
                tracing::warn!(reason, "housekeeping could not read the store, it will be tried again");
                (Slice { rows: 0, deferred_by: None }, false)
            }
            Err(error) if error.may_be_retried() => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(target: "millrace::store", %error, "housekeeping is tried again");
                }
                (Slice { rows: 0, deferred_by: Some(error) }, false)
            }
            Err(error) => return Err(error),
        };
        let pause = match (more, more && is_busy()) {
            (false, _) => self.interval,
            (true, false) => Duration::ZERO,
            (true, true) => started.elapsed() * BUSY_PAUSE,
        };
        self.due_at = Instant::now() + pause;
        Ok(slice)
    }
}
