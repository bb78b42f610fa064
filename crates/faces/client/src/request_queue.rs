//! The background task's end of the mailbox.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use crate::command::ClientCommand;
use crate::error::ClientError;
use crate::mailbox::Mailbox;

/// Most commands that are taken out of the mailbox at once.
const TAKEN_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct RequestQueue {
    mailbox: Arc<Mailbox>,
    taken: VecDeque<ClientCommand>,
}

impl RequestQueue {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> RequestQueue {
        RequestQueue { mailbox, taken: VecDeque::new() }
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Waits for a command; `None` when every handle is gone. Nothing is lost if the caller stops waiting.
    pub(crate) async fn next(&mut self) -> Option<ClientCommand> {
        if self.taken.is_empty() {
            poll_fn(|context| self.mailbox.poll_take(&mut self.taken, TAKEN_MAX, context)).await;
        }
        self.taken.pop_front()
    }

    /// Returns a command that was taken out of the mailbox together with the last one.
    pub(crate) fn next_taken(&mut self) -> Option<ClientCommand> {
        self.taken.pop_front()
    }

    /// Lets no more commands come, and returns those that came.
    pub(crate) fn end(&mut self, error: &ClientError) -> VecDeque<ClientCommand> {
        let untaken = self.mailbox.end(error);
        self.taken.extend(untaken);
        std::mem::take(&mut self.taken)
    }
}

/// Callers that still wait for the task would wait for ever, also when the runtime ends before the task does.
impl Drop for RequestQueue {
    fn drop(&mut self) {
        drop(self.end(&ClientError::Closed));
        self.mailbox.fail_unsettled(&ClientError::Closed);
    }
}
