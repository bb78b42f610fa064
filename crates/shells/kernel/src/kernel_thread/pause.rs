//! Yields to the other tasks of the thread.

use std::future::poll_fn;
use std::task::Poll;

/// Lets every other task that is ready run first. `tokio::task::yield_now` would also poll the operating system for
/// input; with two turns for every request that would be two system calls for every request.
pub(crate) async fn yield_now() {
    let mut been_here = false;
    poll_fn(|cx| {
        if been_here {
            return Poll::Ready(());
        }
        been_here = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
