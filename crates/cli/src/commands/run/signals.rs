//! SIGINT and SIGTERM, on a thread of their own: a signal ends the command even if its other threads wait, for a reader of
//! stdout or for a module to be compiled.

use std::io;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// The first signal is passed on to the command, which ends by itself. The second signal ends the process at once, and so
/// does the first if the command has stopped listening.
pub(super) struct Signals {
    first: oneshot::Receiver<()>,
}

impl Signals {
    /// Signals that come from now on are heard.
    pub(super) fn listen() -> Result<Signals, Failure> {
        let (told, first) = oneshot::channel();
        start(told).map_err(|error| Failure::Failed(format!("cannot listen for signals: {error}")))?;
        Ok(Signals { first })
    }

    /// Waits for the first signal.
    pub(super) async fn interrupted(&mut self) {
        if (&mut self.first).await.is_err() {
            // The thread of the signals never ends before it has told.
            std::future::pending::<()>().await;
        }
    }
}

fn start(told: oneshot::Sender<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut both = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(entered);
    let listen = move || {
        runtime.block_on(async {
            next(&mut both).await;
            if told.send(()).is_ok() {
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
