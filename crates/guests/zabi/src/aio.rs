//! `file/aio`: files beneath a granted folder. A request is acknowledged at once and executed by a worker thread, which
//! queues a frame DONE when it has finished.
//!
//! The jobs of one handle are executed in the order of their requests, one at a time: a guest may write, close and read
//! again without waiting in between. Jobs of different handles share the process's worker threads.

mod completion;
mod job;
mod path;
mod requests;
mod root;
mod shared;
mod workers;

use std::sync::Arc;

use millrace_reactor::{Readiness, ZabiError};

use crate::budget::BudgetShare;
use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::requests::RequestStream;
use crate::signals::ReadySignal;

use requests::Submission;
pub use root::{FileRoot, FileRootError};
use shared::SharedHandle;
pub(crate) use workers::WorkerPool;

/// An open handle of `file/aio`.
#[derive(Debug)]
pub(crate) struct AioHandle {
    requests: RequestStream,
    shared: Arc<SharedHandle>,
    workers: Arc<WorkerPool>,
}

/// The bounds of one handle; see [`crate::Limits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AioLimits {
    pub(crate) jobs_max: usize,
    pub(crate) files_max: usize,
    pub(crate) data_bytes_max: usize,
    pub(crate) output_bytes_max: usize,
    pub(crate) path_bytes_max: u32,
}

impl AioHandle {
    pub(crate) fn new(
        root: FileRoot,
        limits: AioLimits,
        share: BudgetShare,
        signal: ReadySignal,
        workers: &Arc<WorkerPool>,
    ) -> AioHandle {
        let shared = Arc::new(SharedHandle::new(root, limits, share, signal));
        AioHandle { requests: RequestStream::new(), shared, workers: Arc::clone(workers) }
    }
}

impl OpenHandle for AioHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ_WRITE
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        self.shared.state().read(to).ok_or(ZabiError::Again)
    }

    fn write(
        &mut self,
        from: &[u8],
        memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        let mut submission = Submission { memory, shared: &self.shared, workers: &self.workers };
        self.requests.write(from, &mut submission)
    }

    /// Readable: frames are queued. Writable: there is room for any request.
    fn watch_source(&self) -> Option<WatchSource> {
        let state = self.shared.state();
        let readable = if state.output.is_empty() { Readiness::NONE } else { Readiness::READABLE };
        let writable = match state.has_room_for_any_job(&self.shared.limits) {
            true => Readiness::WRITABLE,
            false => Readiness::NONE,
        };
        Some(WatchSource::Computed { signal: self.shared.signal.id(), state: readable | writable })
    }
}

/// Drops the jobs that no worker has begun. A job in progress runs to its end; its result is dropped.
impl Drop for AioHandle {
    fn drop(&mut self) {
        self.shared.close();
    }
}
