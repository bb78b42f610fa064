//! A queue between threads: many add work, one or more threads wait for it.
//!
//! The queue has no limit of its own. Its users add only what an engine has asked for, so the engine's limits bound it.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
pub struct WorkQueue<T> {
    state: Mutex<WorkState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct WorkState<T> {
    waiting: VecDeque<T>,
    /// A thread is to wake although there may be no work.
    nudged: bool,
    ended: bool,
}

impl<T> Default for WorkQueue<T> {
    fn default() -> Self {
        let state = WorkState { waiting: VecDeque::new(), nudged: false, ended: false };
        WorkQueue { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T> WorkQueue<T> {
    /// Adds work. After the end the work is dropped, which tells everybody who waits for its answer.
    pub fn push(&self, work: T) {
        let mut state = self.state.lock();
        if !state.ended {
            state.waiting.push_back(work);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Adds work for one or more threads. After the end the work is dropped.
    pub fn push_all(&self, work: impl IntoIterator<Item = T>) {
        let mut state = self.state.lock();
        if !state.ended {
            state.waiting.extend(work);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Wakes a thread that waits in [`WorkQueue::take_all`].
    pub fn nudge(&self) {
        self.state.lock().nudged = true;
        self.changed.notify_one();
    }

    /// Waits for work. Returns `None` at the end.
    pub fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting.is_empty() && !state.ended);
        state.waiting.pop_front()
    }

    /// Waits for work or a nudge, at most `wait`, and takes everything.
    pub fn take_all(&self, wait: Duration) -> VecDeque<T> {
        let mut state = self.state.lock();
        let idle = |state: &mut WorkState<T>| state.waiting.is_empty() && !state.nudged && !state.ended;
        self.changed.wait_while_for(&mut state, idle, wait);
        state.nudged = false;
        std::mem::take(&mut state.waiting)
    }

    pub fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Accepts no more work, drops what waits, and wakes all threads.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let dropped = std::mem::take(&mut state.waiting);
        drop(state);
        drop(dropped);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn work_comes_in_order_and_a_nudge_wakes_without_work() {
        let queue = WorkQueue::default();
        queue.push(1);
        queue.push_all([2, 3]);
        assert_eq!((queue.next(), queue.len()), (Some(1), 2));
        assert_eq!(queue.take_all(Duration::MAX / 4), [2, 3]);
        queue.nudge();
        assert!(queue.take_all(Duration::from_secs(3600)).is_empty());
        assert!(queue.take_all(Duration::ZERO).is_empty());
    }

    #[test]
    fn the_end_wakes_everybody_and_drops_the_work() {
        let queue = Arc::new(WorkQueue::<Arc<()>>::default());
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                std::thread::spawn(move || queue.next())
            })
            .collect();
        queue.end();
        let work = Arc::new(());
        queue.push(work.clone());
        queue.push_all([work.clone()]);
        assert_eq!(Arc::strong_count(&work), 1, "nobody waits for the answer in vain");
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), None);
        }
        assert!(queue.take_all(Duration::from_secs(3600)).is_empty(), "does not wait after the end");
    }
}
