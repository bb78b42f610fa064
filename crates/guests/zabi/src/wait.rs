//! Waits of the guest's thread, inside a call, for the answer of another thread: bounded in time, and ended with the
//! guest.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, Thread};
use std::time::Duration;

use thiserror::Error;

use crate::clock::mono_now;
use crate::signals::ProcessSignals;

/// Waits for answers. Held by a capability whose requests another thread answers; only the guest's own thread uses it.
#[derive(Clone, Debug)]
pub struct Waiter {
    signals: Arc<ProcessSignals>,
    wait_ms_max: u64,
}

/// Why a wait ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WaitError {
    #[error("no answer within {0} ms")]
    TimedOut(u64),
    #[error("the guest was ended")]
    Ended,
    #[error("nobody is left to answer")]
    Abandoned,
}

/// Sends the answer to a thread that waits. If it is dropped unused, the wait ends with [`WaitError::Abandoned`].
#[derive(Debug)]
pub struct WaitAnswer<T> {
    sender: Option<SyncSender<T>>,
    waiting: Thread,
}

impl Waiter {
    pub(crate) fn new(signals: Arc<ProcessSignals>, wait_ms_max: u64) -> Waiter {
        Waiter { signals, wait_ms_max }
    }

    /// Calls `ask` to pass the question on, then blocks until the answer has come.
    ///
    /// # Errors
    ///
    /// [`WaitError`]; the question may still be answered later, to nobody.
    pub fn wait<T>(&self, ask: impl FnOnce(WaitAnswer<T>)) -> Result<T, WaitError> {
        let (sender, receiver) = sync_channel(1);
        // From here on the end of the guest unparks this thread, and so does the answer.
        let _unpark_at_end = self.signals.unpark_at_end(thread::current());
        ask(WaitAnswer { sender: Some(sender), waiting: thread::current() });
        self.receive(&receiver)
    }

    fn receive<T>(&self, receiver: &Receiver<T>) -> Result<T, WaitError> {
        let deadline_ns = mono_now().0.saturating_add(self.wait_ms_max.saturating_mul(1_000_000));
        loop {
            match receiver.try_recv() {
                Ok(answer) => return Ok(answer),
                Err(TryRecvError::Disconnected) => return Err(WaitError::Abandoned),
                Err(TryRecvError::Empty) => {}
            }
            if self.signals.is_ended() {
                return Err(WaitError::Ended);
            }
            match deadline_ns.saturating_sub(mono_now().0) {
                0 => return Err(WaitError::TimedOut(self.wait_ms_max)),
                left_ns => thread::park_timeout(Duration::from_nanos(left_ns)),
            }
        }
    }
}

impl<T> WaitAnswer<T> {
    /// Sends the answer. Returns false if nobody waits for it any more.
    pub fn send(mut self, answer: T) -> bool {
        // There is room for one answer, and this is the only one.
        self.sender.take().is_some_and(|sender| sender.try_send(answer).is_ok())
    }
}

impl<T> Drop for WaitAnswer<T> {
    fn drop(&mut self) {
        // The channel must end before the thread looks at it.
        self.sender = None;
        self.waiting.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Interrupter;

    fn waiter(wait_ms_max: u64) -> Waiter {
        Waiter::new(Arc::default(), wait_ms_max)
    }

    #[test]
    fn an_answer_ends_the_wait_whenever_it_comes() {
        assert_eq!(waiter(u64::MAX).wait(|answer| assert!(answer.send(1))), Ok(1), "before the wait");
        let later = waiter(u64::MAX).wait(|answer| {
            thread::spawn(move || answer.send(2));
        });
        assert_eq!(later, Ok(2));
        assert_eq!(waiter(0).wait(|answer| assert!(answer.send(3))), Ok(3), "in time");
    }

    #[test]
    fn a_wait_without_an_answer_ends() {
        assert_eq!(waiter(u64::MAX).wait(drop::<WaitAnswer<u32>>), Err(WaitError::Abandoned));
        let mut kept = None;
        assert_eq!(
            waiter(1).wait(|answer: WaitAnswer<u32>| kept = Some(answer)),
            Err(WaitError::TimedOut(1))
        );
        assert!(!kept.unwrap().send(1), "nobody waits any more");
    }

    #[test]
    fn the_end_of_the_guest_ends_the_wait() {
        let waiter = waiter(u64::MAX);
        let end = Interrupter(Arc::clone(&waiter.signals));
        let mut kept = None;
        let waited = waiter.wait(|answer: WaitAnswer<u32>| {
            kept = Some(answer);
            thread::spawn(move || end.end_process());
        });
        assert_eq!(waited, Err(WaitError::Ended));
        assert_eq!(
            waiter.wait(|answer: WaitAnswer<u32>| kept = Some(answer)),
            Err(WaitError::Ended),
            "later, too"
        );
    }
}
