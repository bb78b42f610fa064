//! Ctrl+C and SIGTERM: the first signal stops every running session, the second ends the process.
//!
//! A single thread per process listens, from the first `run` on. While no session runs, a signal ends the process as it
//! would have without that thread.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::threads::StopHandle;
use crate::error::{Result, SessionError};

#[derive(Debug, Default)]
struct Runs {
    next: u64,
    handles: Vec<(u64, StopHandle)>,
    stopping: bool,
}

type Shared = Arc<Mutex<Runs>>;

/// While this lives, signals stop the session.
#[derive(Debug)]
pub(super) struct Listening {
    runs: Shared,
    id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut runs = lock(&self.runs);
        runs.handles.retain(|(id, _)| *id != self.id);
        runs.stopping &= !runs.handles.is_empty();
    }
}

fn lock(runs: &Shared) -> MutexGuard<'_, Runs> {
    runs.lock()
}

pub(super) fn listen(stop: &StopHandle) -> Result<Listening> {
    static RUNS: OnceLock<Shared> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let starting = STARTING.lock();
    let runs = match RUNS.get() {
        Some(runs) => runs.clone(),
        None => {
            let runs = Shared::default();
            start(runs.clone()).map_err(SessionError::Thread)?;
            RUNS.get_or_init(|| runs).clone()
        }
    };
    drop(starting);
    let mut known = lock(&runs);
    known.next += 1;
    let id = known.next;
    known.handles.push((id, stop.clone()));
    drop(known);
    Ok(Listening { runs, id })
}

/// Starts the thread and returns once it catches signals: no signal that comes after a run has begun is missed.
fn start(runs: Shared) -> std::io::Result<()> {
    let (ready, caught) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new().name("millrace-signals".to_owned()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        runtime.block_on(async move {
            let mut signals = match Signals::new() {
                Ok(signals) => signals,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // The caller waits for exactly this.
            let _ = ready.send(Ok(()));
            loop {
                let status = signals.next().await;
                stop_all(&runs, status);
            }
        });
    })?;
    caught.recv().unwrap_or_else(|_| Err(std::io::Error::other("the signal thread ended")))
}

fn stop_all(runs: &Shared, status: i32) {
    let mut runs = lock(runs);
    if runs.handles.is_empty() || runs.stopping {
        // Does what the signal would have done without this thread.
        std::process::exit(status);
    }
    runs.stopping = true;
    for (_, handle) in &runs.handles {
        handle.stop();
    }
}

#[cfg(unix)]
struct Signals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals(signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    }

    /// Returns the exit status for the signal that came.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.0.recv() => 130,
            _ = self.1.recv() => 143,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> i32 {
        // Fails only if the signal handler cannot be installed; then no signal will ever come.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        130
    }
}
