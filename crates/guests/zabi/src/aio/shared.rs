//! The part of a handle of `file/aio` that it shares with worker threads.

use std::collections::VecDeque;

use millrace_reactor::zcl1::{FrameClass, FrameQueue, Header};
use parking_lot::{Mutex, MutexGuard};

use super::AioLimits;
use super::completion::Completion;
use super::job::{AioJob, OpenFiles};
use super::requests::WRITE_BYTES_MAX;
use super::root::FileRoot;
use crate::budget::BudgetShare;
use crate::requests::{ANSWER_BYTES_MAX, error_payload};
use crate::signals::ReadySignal;

pub(super) const TRACE: &str = "file.aio";
/// Room that is reserved for acknowledgements: completions never take it.
const ACK_BYTES_MAX: usize = 65_536;

#[derive(Debug)]
pub(super) struct SharedHandle {
    pub(super) root: FileRoot,
    pub(super) limits: AioLimits,
    pub(super) signal: ReadySignal,
    state: Mutex<SharedState>,
    /// Used by the worker that executes the handle's current job; there is one at a time.
    files: Mutex<OpenFiles>,
}

#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) output: FrameQueue,
    /// The bytes of completions, queued or expected, and of data that waits to be written.
    share: BudgetShare,
    /// Jobs that wait for a worker, in the order of their requests.
    pub(super) jobs: VecDeque<QueuedJob>,
    /// Bytes that completions of waiting and running jobs may need, so that every accepted job can be answered.
    reserved_bytes: usize,
    /// Bytes that waiting jobs are to write.
    data_bytes: usize,
    /// A worker has the handle, or the handle is in the workers' queue.
    is_scheduled: bool,
    is_closed: bool,
}

#[derive(Debug)]
pub(super) struct QueuedJob {
    pub(super) op: u16,
    pub(super) rid: u32,
    pub(super) job: AioJob,
}

impl SharedHandle {
    pub(super) fn new(
        root: FileRoot,
        limits: AioLimits,
        share: BudgetShare,
        signal: ReadySignal,
    ) -> SharedHandle {
        let state = SharedState {
            output: FrameQueue::new(limits.output_bytes_max.saturating_add(ACK_BYTES_MAX)),
            share,
            jobs: VecDeque::new(),
            reserved_bytes: 0,
            data_bytes: 0,
            is_scheduled: false,
            is_closed: false,
        };
        let files = Mutex::new(OpenFiles::new(limits.files_max));
        SharedHandle { root, limits, signal, state: Mutex::new(state), files }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock()
    }

    /// Executes the first waiting job and queues its completion. Returns whether more jobs wait; if not, the handle is
    /// no longer scheduled.
    pub(super) fn run_one(&self) -> bool {
        let Some(queued) = self.state().next_job() else { return false };
        let QueuedJob { op, rid, job } = queued;
        let reserved = job.completion_bytes_max();
        let result = {
            let mut files = self.files.lock();
            job.execute(&mut files, &self.root)
        };
        let has_more = self.state().complete(reserved, &Completion { op, rid, result });
        self.signal.changed();
        has_more
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.jobs.clear();
    }
}

impl SharedState {
    /// Accepts a job. Returns whether the workers must be told of the handle, or `None` if there is no room.
    pub(super) fn accept(&mut self, queued: QueuedJob, limits: &AioLimits) -> Option<bool> {
        let completion = queued.job.completion_bytes_max();
        let data = queued.job.data_bytes();
        let output = self.output.len_bytes() + self.reserved_bytes + completion;
        if self.jobs.len() >= limits.jobs_max
            || output > limits.output_bytes_max
            || self.data_bytes + data > limits.data_bytes_max
            || !self.share.grow(completion + data)
        {
            return None;
        }
        self.reserved_bytes += completion;
        self.data_bytes += data;
        self.jobs.push_back(queued);
        Some(!std::mem::replace(&mut self.is_scheduled, true))
    }

    /// Whether there is room for the largest job. The budget of all handles is ignored: bytes that other handles give
    /// back do not change the readiness of this one.
    pub(super) fn has_room_for_any_job(&self, limits: &AioLimits) -> bool {
        let output = self.output.len_bytes() + self.reserved_bytes + AioJob::COMPLETION_BYTES_MAX;
        let data = self.data_bytes + WRITE_BYTES_MAX as usize;
        // A handle that nothing is pending for is writable, however small its limits are.
        let is_idle = self.output.is_empty() && self.reserved_bytes == 0;
        let has_room = output <= limits.output_bytes_max && data <= limits.data_bytes_max;
        self.jobs.len() < limits.jobs_max && (has_room || is_idle)
    }

    pub(super) fn read(&mut self, to: &mut [u8]) -> Option<usize> {
        let count = self.output.read(to);
        self.settle();
        count
    }

    /// Gives back to the budget what is no longer needed.
    fn settle(&mut self) {
        self.share.shrink_to(self.output.len_bytes() + self.reserved_bytes + self.data_bytes);
    }

    /// Withdraws the job that was accepted last: there is no worker to execute it.
    pub(super) fn withdraw_last(&mut self) {
        self.is_scheduled = false;
        if let Some(queued) = self.jobs.pop_back() {
            self.reserved_bytes -= queued.job.completion_bytes_max();
            self.data_bytes -= queued.job.data_bytes();
            self.settle();
        }
    }

    /// Whether an acknowledgement can be queued.
    pub(super) fn has_room_for_ack(&self) -> bool {
        self.output.room() >= self.reserved_bytes + ANSWER_BYTES_MAX
    }

    pub(super) fn acknowledge(&mut self, op: u16, rid: u32, error: Option<&str>) {
        let queued = match error {
            None => self.output.push(FrameClass::Reply, Header::ok(op, rid), &[]),
            Some(message) => {
                let payload = error_payload(TRACE, message);
                self.output.push(FrameClass::Reply, Header::error(op, rid), &payload)
            }
        };
        debug_assert!(queued.is_ok(), "the room was checked before: {queued:?}");
    }

    fn next_job(&mut self) -> Option<QueuedJob> {
        match self.jobs.pop_front() {
            Some(queued) => {
                self.data_bytes = self.data_bytes.saturating_sub(queued.job.data_bytes());
                Some(queued)
            }
            None => {
                self.is_scheduled = false;
                None
            }
        }
    }

    fn complete(&mut self, reserved_bytes: usize, completion: &Completion) -> bool {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(reserved_bytes);
        if self.is_closed {
            return false;
        }
        let (header, payload) = completion.encode();
        let queued = self.output.push(FrameClass::Event, header, &payload);
        debug_assert!(queued.is_ok(), "the room was reserved: {queued:?}");
        self.settle();
        self.is_scheduled = !self.jobs.is_empty();
        self.is_scheduled
    }
}
