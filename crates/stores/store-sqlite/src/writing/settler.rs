//! The thread that settles while commits go on, and the signal that wakes it.
//!
//! A handle that defers no commit never starts the thread, and the thread sleeps without a timeout while nothing waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::options::SqliteOptions;
use crate::store_core::StoreCore;
use crate::writing::unsettled::UnsettledSize;

/// The thread begins at this fraction of the bounds, so that commits rarely reach them.
const SOON_FRACTION: usize = 8;
/// The pause after an attempt that failed. A commit or a reader that needs it earlier tries itself, and gets the error.
const RETRY: Duration = Duration::from_millis(500);

/// The state by which commits wake the thread.
#[derive(Debug, Default)]
pub(crate) struct SettleSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
    /// The last attempt of the thread failed: the next commit tries itself.
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct SignalState {
    /// When the oldest commit that waits is to be settled.
    due_at: Option<Instant>,
    is_soon: bool,
    has_thread: bool,
    has_ended: bool,
}

impl SettleSignal {
    /// Notes that a commit was deferred. Wakes the thread only for the first one and when much waits.
    pub(crate) fn deferred(&self, size: UnsettledSize, is_first: bool, options: &SqliteOptions) {
        let is_much = size.events >= options.unsettled_events_max / SOON_FRACTION
            || size.bytes >= options.unsettled_bytes_max / SOON_FRACTION;
        if !is_first && !is_much {
            return;
        }
        let mut state = self.state.lock();
        if is_much && !state.is_soon {
            state.is_soon = true;
        } else if state.due_at.is_none() {
            state.due_at = Some(Instant::now() + Duration::from_millis(options.settle_ms));
        } else {
            return;
        }
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }

    fn is_wanted_without_thread(&self) -> bool {
        let state = self.state.lock();
        !state.has_thread && !state.has_ended && (state.due_at.is_some() || state.is_soon)
    }

    /// Waits until something is due. Returns false when the handle ends.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return false;
            }
            let now = Instant::now();
            match state.due_at {
                _ if state.is_soon => break,
                Some(due_at) if due_at <= now => break,
                Some(due_at) => {
                    let _ = self.changed.wait_until(&mut state, due_at);
                }
                None => self.changed.wait(&mut state),
            }
        }
        (state.due_at, state.is_soon) = (None, false);
        true
    }

    /// Asks for another attempt later.
    fn failed(&self) {
        self.has_failed.store(true, Relaxed);
        self.state.lock().due_at = Some(Instant::now() + RETRY);
    }
}

pub(crate) struct Settler {
    core: Arc<StoreCore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Settler {
    pub(crate) fn new(core: Arc<StoreCore>) -> Settler {
        Settler { core, thread: Mutex::default() }
    }

    /// Starts the thread if a commit waits for it. Without a thread the bounds and the readers settle.
    pub(crate) fn start_if_wanted(&self) {
        if !self.core.settle_signal.is_wanted_without_thread() {
            return;
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let core = self.core.clone();
            *thread =
                thread::Builder::new().name("millrace-settle".to_owned()).spawn(move || run(&core)).ok();
            self.core.settle_signal.state.lock().has_thread = thread.is_some();
        }
    }

    /// Ends the thread and settles what is left, so that the file is complete.
    pub(crate) fn stop(&self) {
        self.core.settle_signal.state.lock().has_ended = true;
        self.core.settle_signal.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        // The journal has what cannot be written now.
        let _ = self.core.settle();
    }
}

fn run(core: &StoreCore) {
    while core.settle_signal.wait() {
        match core.settle() {
            Ok(()) => core.settle_signal.has_failed.store(false, Relaxed),
            Err(_) => core.settle_signal.failed(),
        }
    }
}
