//! The thread that starts child processes.
//!
//! Linux kills a guarded child (`guard.rs`) when the *thread* that started it ends, not only when the process does. So
//! one thread, which lives as long as the process, starts all of them. That also keeps the milliseconds of a start away
//! from the loop's own thread.

use std::{io, thread};

use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// Starts that wait for the thread. Above, callers wait.
const WAITING_MAX: usize = 64;

struct Start {
    command: Command,
    /// The tokio runtime that is notified of the child's end.
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// The queue of the thread. There is one for the process, made at first use.
static SPAWNER: Mutex<Option<mpsc::Sender<Start>>> = Mutex::new(None);

pub(crate) async fn spawn(command: Command) -> io::Result<Child> {
    let gone = |_| io::Error::other("the thread that starts children has ended");
    let (started, is_started) = oneshot::channel();
    let start = Start { command, runtime: Handle::current(), started };
    spawner()?.send(start).await.map_err(|_| gone(()))?;
    is_started.await.map_err(|_| gone(()))?
}

fn spawner() -> io::Result<mpsc::Sender<Start>> {
    let mut spawner = SPAWNER.lock();
    if let Some(there) = spawner.as_ref().filter(|there| !there.is_closed()) {
        return Ok(there.clone());
    }
    let (starts_in, mut starts) = mpsc::channel::<Start>(WAITING_MAX);
    let run = move || {
        while let Some(Start { mut command, runtime, started }) = starts.blocking_recv() {
            let _entered = runtime.enter();
            // If nobody waits for the child any more, dropping it kills it.
            drop(started.send(command.spawn()));
        }
    };
    thread::Builder::new().name("millrace-spawn".into()).spawn(run)?;
    *spawner = Some(starts_in.clone());
    Ok(starts_in)
}
