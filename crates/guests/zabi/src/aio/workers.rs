//! The worker threads of one process: few, started when they are needed, joined when the process ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use super::shared::SharedHandle;

#[derive(Debug)]
pub(crate) struct WorkerPool {
    state: Mutex<PoolState>,
    wake: Condvar,
    threads_max: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Handles with jobs, each listed once, so their number bounds the queue. The oldest is served first, one job at a
    /// time.
    ready: VecDeque<Arc<SharedHandle>>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    is_stopping: bool,
}

impl WorkerPool {
    pub(crate) fn new(threads_max: usize) -> Arc<WorkerPool> {
        let threads_max = threads_max.max(1);
        Arc::new(WorkerPool { state: Mutex::default(), wake: Condvar::new(), threads_max })
    }

    /// Queues a handle, whose jobs a worker then executes. Returns false if there is no thread and none can be started.
    pub(super) fn schedule(self: &Arc<WorkerPool>, handle: &Arc<SharedHandle>) -> bool {
        let mut state = self.state.lock();
        if state.is_stopping {
            return false;
        }
        if state.idle <= state.ready.len() && state.threads.len() < self.threads_max {
            let pool = Arc::clone(self);
            let name = format!("zabi-aio-{}", state.threads.len());
            match thread::Builder::new().name(name).spawn(move || pool.work()) {
                Ok(thread) => state.threads.push(thread),
                Err(error) => tracing::error!(%error, "a worker thread of file/aio could not be started"),
            }
        }
        if state.threads.is_empty() {
            return false;
        }
        state.ready.push_back(Arc::clone(handle));
        self.wake.notify_one();
        true
    }

    /// Ends the threads, each after the job that it is executing.
    pub(crate) fn stop(&self) {
        let threads = {
            let mut state = self.state.lock();
            state.is_stopping = true;
            state.ready.clear();
            std::mem::take(&mut state.threads)
        };
        self.wake.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread of file/aio has panicked");
            }
        }
    }

    fn work(&self) {
        while let Some(handle) = self.next_handle() {
            if handle.run_one() {
                let mut state = self.state.lock();
                if !state.is_stopping {
                    state.ready.push_back(handle);
                }
            }
        }
    }

    fn next_handle(&self) -> Option<Arc<SharedHandle>> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            if let Some(handle) = state.ready.pop_front() {
                return Some(handle);
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }
}
