//! The thread that starts children.
//!
//! A guarded child is killed when the *thread* that started it ends, not only when the process does. So they are all
//! started by one thread that ends with the process and no earlier. It also keeps the milliseconds that a start takes
//! away from the loop's own thread.

use std::sync::{Mutex, PoisonError};
use std::{io, thread};

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// Starts that wait for the thread: more wait before it.
const WAITING_MAX: usize = 64;

struct Start {
    command: Command,
    /// Whose reactor notices the child's end.
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// One for the process, whoever needs it first makes it.
static NURSERY: Mutex<Option<mpsc::Sender<Start>>> = Mutex::new(None);

pub(super) async fn spawn(command: Command) -> io::Result<Child> {
    let gone = |_| io::Error::other("the thread that starts children has ended");
    let (started, is_started) = oneshot::channel();
    let start = Start { command, runtime: Handle::current(), started };
    nursery()?.send(start).await.map_err(|_| gone(()))?;
    is_started.await.map_err(|_| gone(()))?
}

fn nursery() -> io::Result<mpsc::Sender<Start>> {
    let mut nursery = NURSERY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = nursery.as_ref().filter(|there| !there.is_closed()) {
        return Ok(there.clone());
    }
    let (starts_in, mut starts) = mpsc::channel::<Start>(WAITING_MAX);
    let run = move || {
        while let Some(Start { mut command, runtime, started }) = starts.blocking_recv() {
            let _entered = runtime.enter();
            // Nobody waits for it any more: dropping it kills it.
            drop(started.send(command.spawn()));
        }
    };
    thread::Builder::new().name("millrace-spawn".into()).spawn(run)?;
    *nursery = Some(starts_in.clone());
    Ok(starts_in)
}
