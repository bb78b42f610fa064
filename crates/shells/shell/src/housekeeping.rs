//! When the store's housekeeping is due, and one slice of it.

use std::time::{Duration, Instant};

use millrace_store::{Store, StoreError};

/// While batches wait, housekeeping pauses this many times as long as its last slice took: it gets a fifth of the
/// writer's time, enough not to fall behind for good, and a batch waits for one slice at most.
const BUSY_PAUSE: u32 = 4;

/// While slices find nothing to do and nothing is committed, the pause doubles up to this.
const IDLE_PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Housekeeping {
    /// Rows in one slice.
    rows_max: usize,
    /// The pause after a commit, or when the last slice found something to do but left nothing.
    interval: Duration,
    pause: Duration,
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
        Housekeeping {
            rows_max,
            interval,
            pause: interval,
            due_at: Instant::now() + interval,
            failing: false,
        }
    }

    pub fn due_at(&self) -> Instant {
        self.due_at
    }

    /// Something was committed, so there may be something to do. Returns whether the next slice is due earlier now.
    pub fn committed(&mut self) -> bool {
        let is_earlier = self.pause > self.interval;
        if is_earlier {
            self.pause = self.interval;
            self.due_at = self.due_at.min(Instant::now() + self.interval);
        }
        is_earlier
    }

    /// Leaves the housekeeping to another process for this time.
    pub fn skip(&mut self) {
        self.rest();
    }

    fn rest(&mut self) {
        self.due_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(IDLE_PAUSE_MAX.max(self.interval));
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
        if slice.rows > 0 || slice.deferred_by.is_some() {
            self.pause = self.interval;
        }
        match (more, more && is_busy()) {
            (false, _) => self.rest(),
            (true, false) => self.due_at = Instant::now(),
            (true, true) => self.due_at = Instant::now() + started.elapsed() * BUSY_PAUSE,
        }
        Ok(slice)
    }
}

#[cfg(test)]
mod tests {
    use millrace_model::Batch;
    use millrace_store::MemoryStore;

    use super::*;

    fn pause(housekeeping: &Housekeeping) -> u128 {
        housekeeping.due_at.saturating_duration_since(Instant::now()).as_millis().next_multiple_of(10)
    }

    #[test]
    fn pauses_grow_while_nothing_is_committed() {
        let store = MemoryStore::new();
        let mut housekeeping = Housekeeping::new(10, Duration::from_millis(400));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            housekeeping.run(&store, || false).unwrap();
            pauses.push(housekeeping.pause);
        }
        assert!(pauses.is_sorted() && pauses[0] < pauses[3]);
        // Wide bounds: this test may be stopped between two lines.
        assert!(pause(&housekeeping) > 2_000 && pause(&housekeeping) <= 5_000);
        store.commit(&[Batch::default()]).unwrap();
        housekeeping.committed();
        assert!(pause(&housekeeping) <= 400);
        housekeeping.committed();
        housekeeping.run(&store, || false).unwrap();
        assert!(pause(&housekeeping) <= 400);
    }
}
