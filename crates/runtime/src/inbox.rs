//! What waits for the owner: two lanes behind one lock.
//!
//! Completions come from the shell's own threads and are bounded by what the engine has asked for. Requests come from
//! outside; each first gets its share of `room`, so their number and bytes are bounded and askers wait in fair order.
//! One lock and one condition variable instead of two channels: the owner takes everything there is at once, and an
//! edge hands over many requests at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_bus::Input;
use tokio::sync::Semaphore;

use crate::handle::Ended;
use crate::link::Asked;

#[derive(Debug)]
pub(crate) struct Inbox {
    lanes: Mutex<Lanes>,
    wake: Condvar,
    room: Semaphore,
    room_max: u32,
    requests_waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Lanes {
    completions: Vec<Input>,
    requests: VecDeque<(Asked, u32)>,
    ended: bool,
}

/// What the owner got hold of, in the order it is to be handled.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) completions: Vec<Input>,
    pub(crate) requests: Vec<Asked>,
    pub(crate) ended: bool,
}

impl Inbox {
    pub(crate) fn new(room_max: u32) -> Inbox {
        Inbox {
            lanes: Mutex::default(),
            wake: Condvar::new(),
            room: Semaphore::new(room_max as usize),
            room_max,
            requests_waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a share of the room; hand over what it is for with [`Inbox::push`]. One request larger than
    /// the whole room waits until it is empty; several together must fit.
    pub(crate) async fn reserve(&self, units: u32) -> Result<(), Ended> {
        self.room.acquire_many(units.min(self.room_max)).await.map_err(|_| Ended)?.forget();
        Ok(())
    }

    /// For what must not wait: at most two of them per connection, and one stop.
    pub(crate) fn tell(&self, asked: Asked) -> Result<(), Ended> {
        self.push(std::iter::once((asked, 0)))
    }

    /// What stands beside each request is its part of the reserved share, given back when the owner takes it.
    pub(crate) fn push(&self, asked: impl Iterator<Item = (Asked, u32)>) -> Result<(), Ended> {
        let mut lanes = self.lock();
        if lanes.ended {
            return Err(Ended);
        }
        lanes.requests.extend(asked);
        self.requests_waiting.store(lanes.requests.len(), Ordering::Relaxed);
        drop(lanes);
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) fn complete(&self, inputs: impl IntoIterator<Item = Input>) {
        self.lock().completions.extend(inputs);
        self.wake.notify_one();
    }

    /// Waits until there is something to do, at most `wait`. Requests are left where they are unless `requests_max`
    /// lets some in.
    pub(crate) fn take(&self, turn: &mut Turn, requests_max: usize, wait: Duration) {
        let idle = |lanes: &mut Lanes| {
            lanes.completions.is_empty() && (requests_max == 0 || lanes.requests.is_empty()) && !lanes.ended
        };
        let guard = self.lock();
        let (mut lanes, _) =
            self.wake.wait_timeout_while(guard, wait, idle).unwrap_or_else(PoisonError::into_inner);
        turn.ended = lanes.ended;
        std::mem::swap(&mut turn.completions, &mut lanes.completions);
        let count = requests_max.min(lanes.requests.len());
        let mut freed = 0;
        turn.requests.extend(lanes.requests.drain(..count).map(|(asked, units)| {
            freed += units.min(self.room_max) as usize;
            asked
        }));
        self.requests_waiting.store(lanes.requests.len(), Ordering::Relaxed);
        drop(lanes);
        if freed > 0 {
            self.room.add_permits(freed);
        }
    }

    /// Lets nobody in any more and ends the owner's wait. What is still queued is dropped, so its askers learn it.
    pub(crate) fn end(&self) {
        let mut lanes = self.lock();
        lanes.ended = true;
        let dropped = std::mem::take(&mut lanes.requests);
        drop(lanes);
        drop(dropped);
        self.room.close();
        self.wake.notify_one();
    }

    pub(crate) fn room_max(&self) -> u32 {
        self.room_max
    }

    pub(crate) fn requests_waiting(&self) -> usize {
        self.requests_waiting.load(Ordering::Relaxed)
    }

    /// The lanes are consistent after every statement, so a panic elsewhere does not spoil them.
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
