//! Giving way to the other tasks of the thread.

use std::future::poll_fn;
use std::task::Poll;

/// Everything that is ready gets its turn first. Unlike `tokio::task::yield_now`, which waits until the operating system
/// was asked for news: at two turns for every request that would be two calls for every request.
pub(crate) async fn others_first() {
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
