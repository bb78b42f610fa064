//! The queue of external completions: finished work of the host that enters the scheduler with the next tick.

use std::collections::VecDeque;

use millrace_model::Mono;

use crate::ids::CallId;
use crate::shuffle::Shuffle;
use crate::timers::TimerKind;

/// An entry does not hold the answer of its completion: the run holds it, so that the answer is freed with the run. An
/// entry whose run has ended is skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct External {
    /// When the completion arrived, or when the timer was due.
    pub(crate) at: Mono,
    pub(crate) call: CallId,
    pub(crate) kind: TimerKind,
}

#[derive(Debug, Default)]
pub(crate) struct ExternalQueue {
    queue: VecDeque<External>,
}

impl ExternalQueue {
    pub(crate) fn push(&mut self, external: External) {
        self.queue.push_back(external);
    }

    pub(crate) fn pop(&mut self) -> Option<External> {
        self.queue.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &External> {
        self.queue.iter()
    }

    /// Shuffles entries with equal times among themselves. Later times stay behind earlier ones.
    pub(crate) fn shuffle(&mut self, shuffle: &mut Shuffle) {
        let entries = self.queue.make_contiguous();
        for simultaneous in entries.chunk_by_mut(|one, next| one.at == next.at) {
            shuffle.permute(simultaneous);
        }
    }
}
