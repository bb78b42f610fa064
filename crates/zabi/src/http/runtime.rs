//! The thread on which `hyper` runs: one for each process, started by its first listener, joined when the process ends.

use std::future::Future;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

#[derive(Debug, Default)]
pub(crate) struct HttpRuntime {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl HttpRuntime {
    /// Runs a task on the thread. The future is made there, so that it may use the runtime's sockets.
    ///
    /// # Errors
    ///
    /// The thread could not be started.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        make: impl FnOnce() -> F,
    ) -> io::Result<AbortHandle> {
        let mut running = self.running();
        let current = match running.take() {
            Some(current) => current,
            None => start()?,
        };
        let task = {
            let _entered = current.handle.enter();
            current.handle.spawn(make()).abort_handle()
        };
        *running = Some(current);
        Ok(task)
    }

    /// Ends the thread and everything that runs on it.
    pub(crate) fn stop(&self) {
        let Some(Running { stop, thread, .. }) = self.running().take() else { return };
        // The thread waits for this, or for the sender's end.
        let _ = stop.send(());
        if thread.join().is_err() {
            tracing::error!("the HTTP thread of a guest has panicked");
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start() -> io::Result<Running> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let thread = thread::Builder::new().name("zabi-http".to_owned()).spawn(move || {
        let _ = runtime.block_on(stopped);
    })?;
    Ok(Running { handle, stop, thread })
}
