//! Sleeps of handlers, by way of the scheduler's timer queue.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use millrace_model::Mono;
use millrace_runs::{CallId, HandlerError};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The sleeps of a host. Bounded by the scheduler's limits on timers, which refuse further ones.
#[derive(Clone)]
pub(crate) struct Sleeps {
    state: Arc<Mutex<SleepState>>,
    requested: Arc<Notify>,
}

#[derive(Default)]
struct SleepState {
    next_token: u64,
    /// Sleeps that handlers have begun and the scheduler does not know yet.
    requests: Vec<SleepRequest>,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    waker: Option<Waker>,
    result: Option<Result<(), HandlerError>>,
}

pub(crate) struct SleepRequest {
    pub(crate) call: CallId,
    pub(crate) at: Mono,
    pub(crate) token: u64,
}

/// See [`crate::HandlerCall::sleep_ms`].
pub struct Sleep {
    sleeps: Sleeps,
    token: u64,
}

impl Sleeps {
    /// `requested` is notified when a handler wants to sleep.
    pub(crate) fn new(requested: Arc<Notify>) -> Sleeps {
        Sleeps { state: Arc::default(), requested }
    }

    pub(crate) fn sleep(&self, call: CallId, at: Mono) -> Sleep {
        let mut state = self.state.lock();
        let token = state.next_token;
        state.next_token += 1;
        state.requests.push(SleepRequest { call, at, token });
        state.waiting.insert(token, Waiting { waker: None, result: None });
        drop(state);
        self.requested.notify_one();
        Sleep { sleeps: self.clone(), token }
    }

    /// Takes the sleeps that the scheduler does not know yet, in the order in which they were asked for.
    pub(crate) fn take_requests(&self) -> Vec<SleepRequest> {
        std::mem::take(&mut self.state.lock().requests)
    }

    /// Ends a sleep. Returns false if nobody waits for it any more.
    pub(crate) fn finish(&self, token: u64, result: Result<(), HandlerError>) -> bool {
        let mut state = self.state.lock();
        let Some(waiting) = state.waiting.get_mut(&token) else { return false };
        waiting.result = Some(result);
        let waker = waiting.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl Future for Sleep {
    type Output = Result<(), HandlerError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.sleeps.state.lock();
        // A sleep that was already awaited to its end is over.
        let Some(waiting) = state.waiting.get_mut(&self.token) else { return Poll::Ready(Ok(())) };
        match waiting.result.take() {
            Some(result) => {
                state.waiting.remove(&self.token);
                Poll::Ready(result)
            }
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.sleeps.state.lock().waiting.remove(&self.token);
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("token", &self.token).finish_non_exhaustive()
    }
}
