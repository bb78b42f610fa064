//! Messages from other threads to a process: a handle's computed readiness has changed, a POLL is to end, the guest is
//! to end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::Thread;

use mio::Waker;
use parking_lot::Mutex;

/// Names a source of computed readiness. Unlike handle numbers, these are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SignalId(u64);

/// The signals of a process, shared with its loops, the threads of its capabilities and its interrupters.
#[derive(Debug, Default)]
pub(crate) struct ProcessSignals {
    next_id: AtomicU64,
    is_poll_interrupted: AtomicBool,
    is_ended: AtomicBool,
    /// The signals of the process's loops, one for each.
    loops: Mutex<Vec<Arc<LoopSignal>>>,
    /// The guest's thread, while it waits for an answer (`wait.rs`).
    waiting: Mutex<Option<Thread>>,
}

/// Removes the thread again when dropped.
#[derive(Debug)]
pub(crate) struct UnparkAtEnd<'a>(&'a ProcessSignals);

/// The part of a loop that other threads may touch.
#[derive(Debug)]
pub(crate) struct LoopSignal {
    waker: Waker,
    /// The waker was used and the loop has not looked since: using it again would waste a system call.
    is_woken: AtomicBool,
    has_changes: AtomicBool,
    /// The watched sources, and whether each has changed since the loop looked.
    watched: Mutex<BTreeMap<SignalId, bool>>,
}

/// Reports changes of a computed readiness, from any thread. Held by the capability that computes it.
#[derive(Clone, Debug)]
pub(crate) struct ReadySignal {
    id: SignalId,
    signals: Arc<ProcessSignals>,
}

/// Ends a wait or a guest from outside. Clones act on the same process, also after it has ended.
#[derive(Clone, Debug)]
pub struct Interrupter(pub(crate) Arc<ProcessSignals>);

impl Interrupter {
    /// Ends the POLL that is waiting, or the next one that would wait, with the events that are pending.
    pub fn interrupt_poll(&self) {
        self.0.is_poll_interrupted.store(true, SeqCst);
        self.0.wake_all();
    }

    /// Ends the guest: a call that waits, as POLL does, returns at once, and every call of the guest returns -5 from
    /// now on. The binding checks [`crate::Process::is_ended`] after each call and stops the guest's code.
    pub fn end_process(&self) {
        self.0.is_ended.store(true, SeqCst);
        self.0.wake_all();
        if let Some(thread) = self.0.waiting.lock().as_ref() {
            thread.unpark();
        }
    }
}

impl ProcessSignals {
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(SeqCst)
    }

    /// Returns whether a POLL is to end, once for each request to end it.
    pub(crate) fn take_interrupt(&self) -> bool {
        self.is_poll_interrupted.load(SeqCst) && self.is_poll_interrupted.swap(false, SeqCst)
    }

    pub(crate) fn new_source(self: &Arc<ProcessSignals>) -> ReadySignal {
        ReadySignal { id: SignalId(self.next_id.fetch_add(1, SeqCst)), signals: Arc::clone(self) }
    }

    pub(crate) fn add_loop(&self, signal: &Arc<LoopSignal>) {
        self.loops.lock().push(Arc::clone(signal));
    }

    pub(crate) fn remove_loop(&self, signal: &Arc<LoopSignal>) {
        self.loops.lock().retain(|other| !Arc::ptr_eq(other, signal));
    }

    /// Records a change that the guest's own thread made: no loop is waiting, so none needs to be woken.
    pub(crate) fn mark(&self, id: SignalId) {
        self.loops.lock().iter().for_each(|signal| {
            signal.mark(id);
        });
    }

    /// Registers the thread to be unparked when the guest is ended, until the returned value is dropped.
    pub(crate) fn unpark_at_end(&self, thread: Thread) -> UnparkAtEnd<'_> {
        *self.waiting.lock() = Some(thread);
        UnparkAtEnd(self)
    }

    fn wake_all(&self) {
        self.loops.lock().iter().for_each(|signal| signal.wake());
    }
}

impl Drop for UnparkAtEnd<'_> {
    fn drop(&mut self) {
        *self.0.waiting.lock() = None;
    }
}

impl ReadySignal {
    pub(crate) fn id(&self) -> SignalId {
        self.id
    }

    /// The readiness may have changed: wakes the loops that watch the source, which then ask for it.
    pub(crate) fn changed(&self) {
        for signal in self.signals.loops.lock().iter() {
            if signal.mark(self.id) {
                signal.wake();
            }
        }
    }
}

impl LoopSignal {
    pub(crate) fn new(waker: Waker) -> LoopSignal {
        LoopSignal {
            waker,
            is_woken: AtomicBool::new(false),
            has_changes: AtomicBool::new(false),
            watched: Mutex::new(BTreeMap::new()),
        }
    }

    pub(crate) fn watch(&self, id: SignalId) {
        self.watched.lock().insert(id, false);
    }

    pub(crate) fn unwatch(&self, id: SignalId) {
        self.watched.lock().remove(&id);
    }

    /// The loop looks now: the next change wakes it again. Must be called before the changes are read.
    pub(crate) fn reset(&self) {
        self.is_woken.store(false, SeqCst);
    }

    /// Returns the sources that have changed since the last call.
    pub(crate) fn take_changes(&self) -> Vec<SignalId> {
        if !self.has_changes.swap(false, SeqCst) {
            return Vec::new();
        }
        let mut watched = self.watched.lock();
        let taken = watched.iter_mut().map(|(id, is_changed)| (*id, std::mem::take(is_changed)));
        taken.filter(|(_, is_changed)| *is_changed).map(|(id, _)| id).collect()
    }

    /// Marks the source as changed. Returns whether the loop watches it.
    fn mark(&self, id: SignalId) -> bool {
        let mut watched = self.watched.lock();
        let Some(is_changed) = watched.get_mut(&id) else { return false };
        *is_changed = true;
        self.has_changes.store(true, SeqCst);
        true
    }

    fn wake(&self) {
        if self.is_woken.swap(true, SeqCst) {
            return;
        }
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a loop of a guest could not be woken");
        }
    }
}
