//! Handles SIGINT and SIGTERM on a separate thread: a signal ends the command even if its other threads are blocked, by
//! a reader of stdout or by the compilation of a module.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// The first signal is passed on to the command, which ends by itself. The second signal ends the process at once. So
/// does the first signal if the command is not listening yet, or no longer.
pub(super) struct InterruptSignals {
    first: oneshot::Receiver<()>,
    is_heard: Arc<AtomicBool>,
}

impl InterruptSignals {
    /// Starts listening: signals from now on are handled.
    pub(super) fn listen() -> Result<InterruptSignals, Failure> {
        let (told, first) = oneshot::channel();
        let is_heard = Arc::new(AtomicBool::new(false));
        start(told, is_heard.clone())
            .map_err(|error| Failure::Failed(format!("cannot listen for signals: {error}")))?;
        Ok(InterruptSignals { first, is_heard })
    }

    /// Waits for the first signal.
    pub(super) async fn interrupted(&mut self) {
        self.is_heard.store(true, Ordering::SeqCst);
        if (&mut self.first).await.is_err() {
            // Not reached in practice: the signal thread sends before it ends.
            std::future::pending::<()>().await;
        }
    }
}

fn start(told: oneshot::Sender<()>, is_heard: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut both = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(entered);
    let listen = move || {
        runtime.block_on(async {
            next(&mut both).await;
            if is_heard.load(Ordering::SeqCst) && told.send(()).is_ok() {
                next(&mut both).await;
            }
        });
        std::process::exit(i32::from(Failure::Interrupted(None).code()));
    };
    thread::Builder::new().name("millrace-signal".into()).spawn(listen).map(drop)
}

async fn next((interrupt, terminate): &mut (Signal, Signal)) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
