//! A running guest: its thread, its time limit, and stopping it from outside.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use millrace_zabi::{Interrupter, Process, ProcessOptions};

use super::limits::GuestLimits;
use super::module::GuestModule;
use super::outcome::{GuestFailure, GuestOutcome};
use super::state::{self, GuestState};

/// The handles that `main` gets: standard input is the request, standard output the response.
const REQUEST_HANDLE: i32 = 0;
const RESPONSE_HANDLE: i32 = 1;

/// Stack for the guest's frames, which wasmtime bounds by 512 KiB, and for the host's below them.
const STACK_BYTES: usize = 2 << 20;

/// How long a guest whose time is over has to release what it holds. A guest takes longer only while it blocks in a
/// standard stream, or while a name is resolved.
const STOP_MAX: Duration = Duration::from_millis(200);

/// A guest on its thread. Dropping it stops the guest, without waiting for its end.
#[derive(Debug)]
pub struct GuestProcess {
    stopper: GuestStopper,
    /// The first outcome counts.
    outcome: Receiver<GuestOutcome>,
}

/// Stops a guest from any thread: while it computes, and while it waits in POLL. A guest that blocks in a read or write
/// of a standard stream, or while a name is resolved, is stopped when that call returns.
#[derive(Clone, Debug)]
pub struct GuestStopper {
    interrupter: Interrupter,
    reason: Arc<OnceLock<StopReason>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    Asked,
    TooLong,
}

impl GuestStopper {
    /// Ends the guest; its outcome is [`GuestOutcome::Stopped`]. Does nothing to a guest that has ended.
    pub fn stop(&self) {
        self.stop_because(StopReason::Asked);
    }

    /// Ends the guest's POLL that is waiting, or the next one that would wait; the guest goes on.
    pub fn interrupt_poll(&self) {
        self.interrupter.interrupt_poll();
    }

    /// The first reason is the one that counts.
    fn stop_because(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.interrupter.end_process();
    }
}

impl GuestModule {
    /// Starts a guest on a thread of its own. `options.heap_base` is replaced by the module's own.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start(&self, options: ProcessOptions, limits: &GuestLimits) -> io::Result<GuestProcess> {
        let process = Process::new(options);
        let stopper = GuestStopper { interrupter: process.interrupter(), reason: Arc::default() };
        let (module, limits, reason) = (self.clone(), limits.clone(), Arc::clone(&stopper.reason));
        let (outcomes, outcome) = mpsc::channel();
        // Dropped when the guest's thread ends, which tells the thread of the time limit.
        let limit = |max_ms| start_limit(max_ms, stopper.clone(), outcomes.clone());
        let alive = limits.wall_ms_max.map(limit).transpose()?;
        let thread = thread::Builder::new().name("millrace-guest".into()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let outcome = run(&module, process, &limits);
            let outcome = match (outcome, reason.get(), limits.wall_ms_max) {
                (GuestOutcome::Stopped, Some(StopReason::TooLong), Some(max_ms)) => {
                    GuestOutcome::Failed(GuestFailure::TooLong { max_ms })
                }
                (outcome, ..) => outcome,
            };
            // Nobody may be waiting for the outcome.
            let _ = outcomes.send(outcome);
            drop(alive);
        })?;
        Ok(GuestProcess { stopper, outcome })
    }
}

impl GuestProcess {
    /// Returns a handle by which other threads stop the guest.
    pub fn stopper(&self) -> GuestStopper {
        self.stopper.clone()
    }

    /// Waits until the guest has ended and everything that it held is released. Only a guest whose time is over while
    /// it blocks in a standard stream, or while a name is resolved, may still hold something: its thread ends when that
    /// call returns.
    pub fn wait(self) -> GuestOutcome {
        self.outcome.recv().unwrap_or(GuestOutcome::Failed(GuestFailure::HostFailed))
    }
}

impl Drop for GuestProcess {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// Starts a thread that stops the guest when its time is over. The guest itself cannot check: while it waits in POLL it
/// executes no code.
fn start_limit(max_ms: u64, stopper: GuestStopper, outcomes: Sender<GuestOutcome>) -> io::Result<Sender<()>> {
    let (alive, ended) = mpsc::channel();
    thread::Builder::new().name("millrace-limit".into()).spawn(move || {
        let is_over = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if is_over(Duration::from_millis(max_ms)) {
            stopper.stop_because(StopReason::TooLong);
            if is_over(STOP_MAX) {
                // The guest's own outcome comes later, or never.
                let _ = outcomes.send(GuestOutcome::Failed(GuestFailure::TooLong { max_ms }));
            }
        }
    })?;
    Ok(alive)
}

/// Runs a guest to its end, on the calling thread. When this returns, the store and everything that the process held
/// are released.
fn run(module: &GuestModule, process: Process, limits: &GuestLimits) -> GuestOutcome {
    let mut store = state::store(module.code.module().engine(), process, limits);
    match call_main(module, &mut store) {
        Ok(code) => GuestOutcome::Returned(code),
        Err(error) => GuestOutcome::of_error(&error, limits),
    }
}

fn call_main(module: &GuestModule, store: &mut wasmtime::Store<GuestState>) -> wasmtime::Result<i32> {
    let instance = module.code.instantiate(&mut *store)?;
    let heap_base = instance.get_global(&mut *store, "__heap_base");
    if let Some(base) = heap_base.and_then(|global| global.get(&mut *store).i32()) {
        store.data_mut().process.set_heap_base(u64::from(base.cast_unsigned()));
    }
    let handles = (REQUEST_HANDLE, RESPONSE_HANDLE);
    match instance.get_typed_func::<(i32, i32), i32>(&mut *store, "main") {
        Ok(main) => main.call(store, handles),
        // `check_exports` accepts only one other type.
        Err(_) => {
            instance.get_typed_func::<(i32, i32), ()>(&mut *store, "main")?.call(store, handles).map(|()| 0)
        }
    }
}
