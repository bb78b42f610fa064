//! The parts of the inbox that a test replaces: the lock, the condition variable and the clock. The model check
//! (`tests/schedule_model`) compiles `inbox.rs` with others in their place.

use std::time::Instant;

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::schedule::Wake;

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Wakes the threads that sleep on `condvar`, one or all of them.
pub(crate) fn notify(condvar: &Condvar, wake: Wake) {
    if wake.is_for_all() {
        condvar.notify_all();
    } else {
        condvar.notify_one();
    }
}
