//! The futures of handlers, polled on the host's thread in the order in which they were woken.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::{AbortHandle, Abortable, FutureExt};
use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use millrace_runs::{CallId, HandlerError};

use crate::handler::{HandlerFuture, HandlerResult};

/// A handler's result; `None` if its run ended first.
pub(super) type Finished = (CallId, Option<HandlerResult>);

type Working = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// The futures of working handlers. Bounded by the active runs: each has at most one handler working.
#[derive(Default)]
pub(super) struct HandlerFutures {
    working: FuturesUnordered<Working>,
}

/// The result of polling all woken futures.
pub(super) enum Polled {
    Finished(Finished),
    /// Every future waits for something.
    AllWaiting,
    /// Some future wants to be polled again at once.
    Again,
}

impl HandlerFutures {
    pub(super) fn add(&mut self, call: CallId, future: HandlerFuture) -> AbortHandle {
        let (handle, registration) = AbortHandle::new_pair();
        let future = std::panic::AssertUnwindSafe(future).catch_unwind();
        let future = Abortable::new(future, registration).map(move |result| {
            let result = result.ok().map(|caught| caught.unwrap_or_else(|panic| Err(panicked(&*panic))));
            (call, result)
        });
        self.working.push(Box::pin(future));
        handle
    }

    pub(super) fn poll(&mut self) -> Polled {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        match Pin::new(&mut self.working).poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(finished)) => Polled::Finished(finished),
            Poll::Ready(None) => Polled::AllWaiting,
            Poll::Pending if woken.0.load(SeqCst) => Polled::Again,
            Poll::Pending => Polled::AllWaiting,
        }
    }

    /// Waits for the next result; for ever if no handler is working.
    pub(super) async fn next(&mut self) -> Finished {
        match self.working.next().await {
            Some(finished) => finished,
            None => std::future::pending().await,
        }
    }
}

/// Records whether a future was woken while all of them were polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// The error of a handler that panicked.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> HandlerError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    HandlerError::new(format!("the handler panicked: {}", text.unwrap_or("without a text")))
}
