//! Counters that do not depend on how fast the machine is.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// The name of the script's thread.
pub(crate) const SCRIPT: &str = "script";

/// A future that counts its polls.
pub(crate) struct Counted<F> {
    future: Pin<Box<F>>,
    polls: Polls,
}

#[derive(Clone, Default)]
pub(crate) struct Polls(Arc<AtomicU64>);

impl Polls {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<F: Future> Counted<F> {
    pub(crate) fn new(future: F) -> (Counted<F>, Polls) {
        let polls = Polls::default();
        (Counted { future: Box::pin(future), polls: polls.clone() }, polls)
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.0.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(context)
    }
}

/// How often the threads of client and load gave up their core by themselves. The script's thread has a name of its own.
pub(crate) fn context_switches() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let of_thread = |folder: PathBuf| {
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let status = std::fs::read_to_string(folder.join("status")).ok().filter(|_| name.trim() != SCRIPT)?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?
            .trim()
            .parse::<u64>()
            .ok()
    };
    threads.filter_map(Result::ok).filter_map(|thread| of_thread(thread.path())).sum()
}
