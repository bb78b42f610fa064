//! A caller's way into the mailbox: it waits for room if it publishes, and then until there are few enough requests.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::line::LineNumber;
use super::{Confirmation, Mailbox, MailboxState, Unconfirmed, wake};
use crate::command::ClientCommand;
use crate::error::ClientError;
use crate::receipt::Awaited;

/// A caller that has not queued its request yet. When it is dropped, it leaves the line and gives its room back.
struct Turn<'a> {
    mailbox: &'a Mailbox,
    room: Room,
    /// The caller's number in the line for room, until it has its room, and then in the line for requests.
    number: Option<LineNumber>,
}

/// The room of a request, in bytes if it is a publish.
#[derive(Clone, Copy)]
enum Room {
    NotNeeded,
    Wanted(usize),
    Taken(usize),
}

impl Mailbox {
    /// Resolves when the request is queued.
    pub(crate) async fn send(&self, command: ClientCommand) -> Result<(), ClientError> {
        let mut turn = Turn { mailbox: self, room: Room::NotNeeded, number: None };
        let mut command = Some(command);
        poll_fn(|context| turn.poll(context, |state, _| state.requests.extend(command.take()))).await
    }

    /// Resolves when the publish is queued. A publish of more bytes than are allowed waits until it is alone.
    pub(crate) async fn publish<T: Confirmation>(
        self: &Arc<Mailbox>,
        bytes: usize,
        request: impl FnOnce(Unconfirmed) -> ClientCommand,
    ) -> Result<Awaited<T>, ClientError> {
        let room = Room::Wanted(bytes.min(self.limits.bytes));
        let mut turn = Turn { mailbox: self, room, number: None };
        let mut request = Some(request);
        let queue = |state: &mut MailboxState, bytes| {
            let slot = T::slots(state).add();
            state.requests.extend(request.take().map(|request| request(Unconfirmed { slot, bytes })));
            slot
        };
        let mut queue = queue;
        let slot = poll_fn(|context| turn.poll(context, &mut queue)).await?;
        Ok(Awaited::new(self.clone(), slot))
    }
}

impl Turn<'_> {
    /// Calls `queue` with the state and the bytes of the caller's room, once it is the caller's turn.
    fn poll<R>(
        &mut self,
        context: &Context<'_>,
        queue: impl FnOnce(&mut MailboxState, usize) -> R,
    ) -> Poll<Result<R, ClientError>> {
        let limits = &self.mailbox.limits;
        let mut state = self.mailbox.state.lock();
        if let Some(error) = &state.ended {
            return Poll::Ready(Err(error.clone()));
        }
        let mut next_for_room = None;
        if let Room::Wanted(bytes) = self.room {
            if !state.for_room.is_first(self.number) || !state.has_room(limits, bytes) {
                state.for_room.wait(&mut self.number, context.waker());
                return Poll::Pending;
            }
            state.for_room.leave(&mut self.number);
            state.publishes += 1;
            state.bytes += bytes;
            self.room = Room::Taken(bytes);
            next_for_room = state.for_room.first().filter(|_| state.has_room(limits, 1));
        }
        if !state.for_requests.is_first(self.number) || state.requests.len() >= limits.requests {
            state.for_requests.wait(&mut self.number, context.waker());
            drop(state);
            wake(next_for_room);
            return Poll::Pending;
        }
        state.for_requests.leave(&mut self.number);
        let bytes = match self.room {
            Room::Taken(bytes) => bytes,
            _ => 0,
        };
        // From here on the room belongs to the request.
        self.room = Room::NotNeeded;
        let queued = queue(&mut state, bytes);
        let next_for_requests = state.for_requests.first().filter(|_| state.requests.len() < limits.requests);
        let task = state.task.take();
        drop(state);
        [task, next_for_room, next_for_requests].into_iter().for_each(wake);
        Poll::Ready(Ok(queued))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.number.is_none() && !matches!(self.room, Room::Taken(_)) {
            return;
        }
        let mut state = self.mailbox.state.lock();
        let (next_for_room, next_for_requests) = match self.room {
            Room::Wanted(_) => {
                state.for_room.leave(&mut self.number);
                (state.for_room.first(), None)
            }
            Room::Taken(bytes) => {
                state.give_room_back(bytes);
                state.for_requests.leave(&mut self.number);
                (state.for_room.first(), state.for_requests.first())
            }
            Room::NotNeeded => {
                state.for_requests.leave(&mut self.number);
                (None, state.for_requests.first())
            }
        };
        drop(state);
        [next_for_room, next_for_requests].into_iter().for_each(wake);
    }
}
