//! The mailbox, which the handles and the background task share: requests for the task, the room for publishes, and their
//! answers.
//!
//! A single lock guards all of it, so that a publish is queued in one step, and the task takes all requests in one step and
//! answers many publishes in one. Nobody is woken while the lock is held, and whoever does not wait is not woken.

mod line;
mod slots;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use millrace_wire::{Published, PublishedBatch};
use parking_lot::Mutex;

use self::line::WaitingLine;
use self::slots::Slots;
use crate::command::{ClientCommand, Reply};
use crate::error::ClientError;
use crate::options::ClientOptions;

#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    limits: Limits,
}

#[derive(Debug)]
struct Limits {
    publishes: usize,
    bytes: usize,
    requests: usize,
}

#[derive(Debug, Default)]
pub(crate) struct MailboxState {
    requests: VecDeque<ClientCommand>,
    /// The background task, if it waits for requests.
    task: Option<Waker>,
    /// Every handle is gone: no request will come.
    is_deserted: bool,
    /// Why the task has ended.
    ended: Option<ClientError>,
    /// Publishes that are not confirmed, and their bytes.
    publishes: usize,
    bytes: usize,
    /// Callers that wait for room for a publish.
    for_room: WaitingLine,
    /// Callers that wait until there are fewer requests.
    for_requests: WaitingLine,
    answers: Slots<Published>,
    batch_answers: Slots<PublishedBatch>,
}

/// The possessions of a publish until it is settled: the slot of its answer, and room.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    slot: usize,
    bytes: usize,
}

/// A request with its answer.
#[derive(Debug)]
pub(crate) enum Settled {
    One(Unconfirmed, Result<Published, ClientError>),
    Batch(Unconfirmed, Result<PublishedBatch, ClientError>),
    Plain(Reply<()>, Result<(), ClientError>),
}

/// A kind of answer, which has slots of its own.
pub(crate) trait Confirmation: Sized {
    fn slots(state: &mut MailboxState) -> &mut Slots<Self>;
}

impl Confirmation for Published {
    fn slots(state: &mut MailboxState) -> &mut Slots<Published> {
        &mut state.answers
    }
}

impl Confirmation for PublishedBatch {
    fn slots(state: &mut MailboxState) -> &mut Slots<PublishedBatch> {
        &mut state.batch_answers
    }
}

impl Mailbox {
    pub(crate) fn new(options: &ClientOptions) -> Arc<Mailbox> {
        let limits = Limits {
            publishes: options.publishes_inflight_max.max(1),
            bytes: options.publish_bytes_inflight_max.max(1),
            requests: options.requests_max.max(1),
        };
        Arc::new(Mailbox { state: Mutex::default(), limits })
    }

    /// Queues a request if there is room now; otherwise it is lost.
    pub(crate) fn try_send(&self, command: ClientCommand) {
        let mut state = self.state.lock();
        if state.ended.is_none() && state.requests.len() < self.limits.requests {
            state.requests.push_back(command);
            let task = state.task.take();
            drop(state);
            wake(task);
        }
    }

    /// Moves requests to `taken`, at most `max`. Returns false when there are none and none will come.
    pub(crate) fn poll_take(
        &self,
        taken: &mut VecDeque<ClientCommand>,
        max: usize,
        context: &Context<'_>,
    ) -> Poll<bool> {
        let mut state = self.state.lock();
        if state.requests.is_empty() {
            if state.is_deserted {
                return Poll::Ready(false);
            }
            if !state.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
                state.task = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        if taken.is_empty() && state.requests.len() <= max {
            std::mem::swap(taken, &mut state.requests);
        } else {
            let count = max.min(state.requests.len());
            taken.extend(state.requests.drain(..count));
        }
        let next = state.for_requests.first();
        drop(state);
        wake(next);
        Poll::Ready(true)
    }

    /// Answers requests and gives the room of publishes back. A caller that awaits several receipts in turn finds all of
    /// these answers when it is woken for the first. Other requests are answered last, so that whoever uses one as a
    /// barrier finds what came before it. A requester that is gone by now is ignored.
    pub(crate) fn settle(&self, settled: &mut Vec<Settled>) {
        if settled.is_empty() {
            return;
        }
        let (mut wake, mut plain) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        for one in settled.drain(..) {
            let (bytes, waker) = match one {
                Settled::One(of, answer) => (of.bytes, state.answers.answer(of.slot, answer)),
                Settled::Batch(of, answer) => (of.bytes, state.batch_answers.answer(of.slot, answer)),
                Settled::Plain(reply, answer) => {
                    plain.push((reply, answer));
                    continue;
                }
            };
            state.give_room_back(bytes);
            wake.extend(waker);
        }
        wake.extend(state.for_room.first());
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        for (reply, answer) in plain {
            drop(reply.send(answer));
        }
    }

    /// Called when no handle is left.
    pub(crate) fn desert(&self) {
        let mut state = self.state.lock();
        state.is_deserted = true;
        let task = state.task.take();
        drop(state);
        wake(task);
    }

    /// Refuses all requests from now on, for the reason that is given first. Returns those that were not taken.
    pub(crate) fn end(&self, error: &ClientError) -> VecDeque<ClientCommand> {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| error.clone());
        let untaken = std::mem::take(&mut state.requests);
        let mut wake: Vec<Waker> = state.for_room.dissolve().collect();
        wake.extend(state.for_requests.dissolve());
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        untaken
    }

    /// Fails the publishes that were not settled, which nobody will settle any more.
    pub(crate) fn fail_unsettled(&self, error: &ClientError) {
        let mut wake = Vec::new();
        let mut state = self.state.lock();
        state.answers.fail_waiting(error, &mut wake);
        state.batch_answers.fail_waiting(error, &mut wake);
        drop(state);
        wake.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn end_reason(&self) -> ClientError {
        self.state.lock().ended.clone().unwrap_or(ClientError::Closed)
    }

    pub(crate) fn read<T: Confirmation>(
        &self,
        slot: usize,
        context: &Context<'_>,
    ) -> Poll<Result<T, ClientError>> {
        T::slots(&mut self.state.lock()).read(slot, context)
    }

    pub(crate) fn abandon<T: Confirmation>(&self, slot: usize) {
        T::slots(&mut self.state.lock()).abandon(slot);
    }
}

impl MailboxState {
    fn has_room(&self, limits: &Limits, bytes: usize) -> bool {
        self.publishes < limits.publishes && self.bytes + bytes <= limits.bytes
    }

    fn give_room_back(&mut self, bytes: usize) {
        self.publishes -= 1;
        self.bytes -= bytes;
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
