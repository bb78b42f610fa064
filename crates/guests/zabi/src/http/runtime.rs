//! The thread on which `hyper` runs: one for each process, started by its first listener, joined when the process ends.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long the end of a process waits for responses that the guest has given and the clients have not received.
const FLUSH_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct HttpRuntime {
    running: Mutex<Option<RunningRuntime>>,
    connections_max: u32,
    /// Has a permit for each connection of all listeners.
    pub(super) connections: Arc<Semaphore>,
    /// Has a permit for each response that is on its way.
    pub(super) responses: Arc<Semaphore>,
}

#[derive(Debug)]
struct RunningRuntime {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl HttpRuntime {
    pub(crate) fn new(connections_max: usize) -> Arc<HttpRuntime> {
        let connections_max = u32::try_from(connections_max).unwrap_or(u32::MAX);
        let permits = || Arc::new(Semaphore::new((connections_max as usize).min(Semaphore::MAX_PERMITS)));
        let (connections, responses) = (permits(), permits());
        Arc::new(HttpRuntime { running: Mutex::default(), connections_max, connections, responses })
    }

    /// Runs a task on the thread. The future is made there, so that it may use the runtime's sockets.
    ///
    /// # Errors
    ///
    /// The thread could not be started.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        make: impl FnOnce() -> F,
    ) -> io::Result<AbortHandle> {
        let mut running = self.running.lock();
        let current = match running.take() {
            Some(current) => current,
            None => self.start()?,
        };
        let task = {
            let _entered = current.handle.enter();
            current.handle.spawn(make()).abort_handle()
        };
        *running = Some(current);
        Ok(task)
    }

    /// Ends the thread and everything that runs on it, after the responses that are on their way.
    pub(crate) fn stop(&self) {
        let Some(RunningRuntime { stop, thread, .. }) = self.running.lock().take() else { return };
        // The thread waits for this message, or for the sender to be dropped.
        let _ = stop.send(());
        if thread.join().is_err() {
            tracing::error!("the HTTP thread of a guest has panicked");
        }
    }

    fn start(&self) -> io::Result<RunningRuntime> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (responses, all) = (Arc::clone(&self.responses), self.connections_max);
        let thread = thread::Builder::new().name("zabi-http".to_owned()).spawn(move || {
            runtime.block_on(async {
                let _ = stopped.await;
                if timeout(FLUSH_MAX, responses.acquire_many(all)).await.is_err() {
                    tracing::warn!("a guest has ended before all its HTTP responses were sent");
                }
            });
        })?;
        Ok(RunningRuntime { handle, stop, thread })
    }
}
