//! The answers to publishes: one slot for each, from the publish until its receipt was read or dropped.

use std::task::{Context, Poll, Waker};

use crate::error::ClientError;

/// With at most this many slots, memory is kept when all of them are free.
const KEPT: usize = 1024;

#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
enum Slot<T> {
    Free,
    /// Not answered. The waker is that of the receipt, if it waits.
    Waiting(Option<Waker>),
    Answered(Result<T, ClientError>),
    /// Not answered, and nobody will read the answer.
    Abandoned,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn add(&mut self) -> usize {
        let slot = Slot::Waiting(None);
        match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    /// Returns what wakes the receipt, if it waits.
    pub(super) fn answer(&mut self, at: usize, answer: Result<T, ClientError>) -> Option<Waker> {
        match std::mem::replace(&mut self.slots[at], Slot::Answered(answer)) {
            Slot::Waiting(waker) => waker,
            _ => {
                self.release(at);
                None
            }
        }
    }

    /// Returns the answer and gives up the slot, if there is one.
    pub(super) fn read(&mut self, at: usize, context: &Context<'_>) -> Poll<Result<T, ClientError>> {
        match std::mem::replace(&mut self.slots[at], Slot::Free) {
            Slot::Answered(answer) => {
                self.release(at);
                Poll::Ready(answer)
            }
            Slot::Waiting(waker) => {
                let waker = waker.filter(|waker| waker.will_wake(context.waker()));
                self.slots[at] = Slot::Waiting(Some(waker.unwrap_or_else(|| context.waker().clone())));
                Poll::Pending
            }
            Slot::Free | Slot::Abandoned => Poll::Ready(Err(ClientError::Closed)),
        }
    }

    /// Gives up the slot of a receipt that was dropped: at once, or when the answer comes.
    pub(super) fn abandon(&mut self, at: usize) {
        match &mut self.slots[at] {
            slot @ Slot::Waiting(_) => *slot = Slot::Abandoned,
            Slot::Answered(_) => self.release(at),
            Slot::Free | Slot::Abandoned => {}
        }
    }

    /// Answers everything that waits.
    pub(super) fn fail_waiting(&mut self, error: &ClientError, wake: &mut Vec<Waker>) {
        for slot in &mut self.slots {
            if let Slot::Waiting(waker) = slot {
                wake.extend(waker.take());
                *slot = Slot::Answered(Err(error.clone()));
            }
        }
    }

    fn release(&mut self, at: usize) {
        self.slots[at] = Slot::Free;
        self.free.push(at);
        if self.free.len() == self.slots.len() && self.slots.len() > KEPT {
            *self = Slots::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(slots: &mut Slots<u32>, at: usize) -> Poll<Result<u32, ClientError>> {
        slots.read(at, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_slot_is_used_again_once_its_answer_was_read() {
        let mut slots = Slots::default();
        let at = slots.add();
        assert!(slots.answer(at, Ok(1)).is_none(), "nobody waits yet");
        assert_ne!(slots.add(), at);
        assert!(matches!(read(&mut slots, at), Poll::Ready(Ok(1))));
        assert_eq!(slots.add(), at);
        assert!(read(&mut slots, at).is_pending());
        assert!(slots.answer(at, Ok(2)).is_some(), "the receipt waits");
    }

    #[test]
    fn an_abandoned_slot_is_free_when_it_is_answered_and_not_before() {
        let mut slots = Slots::default();
        let at = slots.add();
        slots.abandon(at);
        assert_ne!(slots.add(), at);
        assert!(slots.answer(at, Ok(1)).is_none());
        assert_eq!(slots.add(), at);
        slots.answer(at, Ok(1));
        slots.abandon(at);
        assert_eq!(slots.add(), at);
    }

    #[test]
    fn memory_of_a_burst_is_given_back() {
        let mut slots = Slots::default();
        let all: Vec<usize> = (0..2 * KEPT).map(|_| slots.add()).collect();
        for at in all {
            slots.answer(at, Ok(1));
            slots.abandon(at);
        }
        assert_eq!(slots.slots.capacity(), 0);
    }

    #[test]
    fn what_waits_can_be_failed_at_once() {
        let mut slots = Slots::default();
        let (waiting, answered) = (slots.add(), slots.add());
        assert!(read(&mut slots, waiting).is_pending());
        slots.answer(answered, Ok(1));
        let mut wake = Vec::new();
        slots.fail_waiting(&ClientError::Closed, &mut wake);
        assert_eq!(wake.len(), 1);
        assert!(matches!(read(&mut slots, waiting), Poll::Ready(Err(ClientError::Closed))));
        assert!(matches!(read(&mut slots, answered), Poll::Ready(Ok(1))));
    }
}
