//! A thread for requests to the engine of a shared store that repeat many times a second. A thread of the async runtime
//! will not do: a journal that has a small runtime of its own would have to start another thread for every request.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Ends when it is dropped, after the request under way.
pub(super) struct EngineThread {
    jobs: SyncSender<Job>,
}

impl EngineThread {
    pub(super) fn start(name: &str) -> io::Result<EngineThread> {
        let (jobs, waiting) = sync_channel::<Job>(1);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || waiting.into_iter().for_each(|job| job()))?;
        Ok(EngineThread { jobs })
    }

    /// Runs `work` on the thread. `None` if an earlier call, which nobody waits for any more, still runs and another
    /// one waits behind it, or if `work` panicked.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // A caller that has gone needs no result.
            let _ = done.send(work());
        });
        self.jobs.try_send(job).ok()?;
        result.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_run_one_after_the_other_outside_the_runtime() {
        let thread = EngineThread::start("engine-test").unwrap();
        for n in 0..3 {
            let found = thread
                .call(move || (n, tokio::runtime::Handle::try_current().is_err(), thread::current().id()))
                .await;
            let (at, is_outside, id) = found.unwrap();
            assert!(at == n && is_outside && id != thread::current().id());
        }
    }

    #[tokio::test]
    async fn a_panic_is_no_result() {
        let thread = EngineThread::start("engine-test").unwrap();
        assert_eq!(thread.call(|| -> u8 { panic!("on purpose") }).await, None);
        assert_eq!(thread.call(|| 1).await, None, "the thread has ended");
    }
}
