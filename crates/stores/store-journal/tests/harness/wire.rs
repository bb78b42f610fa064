//! The way of one server to its engine, which a test can cut, and at which it can act before and after every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use millrace_conformance::journal::JournalCall;
use millrace_journal::{
    Fitness, HeadGuard, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion, PartName,
    Placed, Placing,
};
use millrace_store_journal::record;
use parking_lot::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// An error that the hook returns here is the answer: the request does not arrive.
    Before,
    /// An error that the hook returns here replaces the answer of the engine.
    After,
}

type Hook = Box<dyn FnMut(JournalCall, Moment) -> Option<JournalError> + Send>;

/// How many requests are remembered: a handle that waits for its engine makes many.
const CALLS_MAX: usize = 1_000;

/// Requests that the hook itself causes pass without it.
pub(crate) struct Wire {
    inner: Arc<dyn Journal>,
    hook: Mutex<Option<Hook>>,
    calls: Mutex<Vec<JournalCall>>,
    engine_time_ms: Mutex<Option<u64>>,
    is_replicated: AtomicBool,
    /// Compares like PostgreSQL: a record is placed only behind the one that it names.
    guards_head: bool,
}

pub(crate) fn unknown(text: &str) -> JournalError {
    JournalError::Unknown(text.to_owned().into())
}

impl Wire {
    pub(crate) fn new(inner: Arc<dyn Journal>) -> Wire {
        Wire {
            inner,
            hook: Mutex::default(),
            calls: Mutex::default(),
            engine_time_ms: Mutex::default(),
            is_replicated: AtomicBool::new(false),
            guards_head: false,
        }
    }

    pub(crate) fn guarding_head(inner: Arc<dyn Journal>) -> Wire {
        Wire { guards_head: true, ..Wire::new(inner) }
    }

    pub(crate) fn on(&self, hook: impl FnMut(JournalCall, Moment) -> Option<JournalError> + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }

    /// Calls the hook once, before the first request that `is_it` selects.
    pub(crate) fn once_before(
        &self,
        is_it: impl Fn(JournalCall) -> bool + Send + 'static,
        act: impl FnOnce() + Send + 'static,
    ) {
        let mut act = Some(act);
        self.on(move |call, moment| {
            if moment == Moment::Before
                && is_it(call)
                && let Some(act) = act.take()
            {
                act();
            }
            None
        });
    }

    pub(crate) fn cut(&self) {
        self.on(|_, moment| (moment == Moment::Before).then(|| unknown("the test has cut the wire")));
    }

    pub(crate) fn mend(&self) {
        *self.hook.lock() = None;
    }

    pub(crate) fn set_engine_time(&self, ms: u64) {
        *self.engine_time_ms.lock() = Some(ms);
    }

    pub(crate) fn set_replicated(&self, is_replicated: bool) {
        self.is_replicated.store(is_replicated, Relaxed);
    }

    /// Returns the requests since the last call of this method.
    pub(crate) fn take_calls(&self) -> Vec<JournalCall> {
        std::mem::take(&mut self.calls.lock())
    }

    fn request<T>(
        &self,
        call: JournalCall,
        send: impl FnOnce() -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        {
            let mut calls = self.calls.lock();
            if calls.len() < CALLS_MAX {
                calls.push(call);
            }
        }
        self.tell(call, Moment::Before)?;
        let answer = send()?;
        self.tell(call, Moment::After)?;
        Ok(answer)
    }

    fn tell(&self, call: JournalCall, moment: Moment) -> Result<(), JournalError> {
        let Some(mut hook) = self.hook.lock().take() else { return Ok(()) };
        let error = hook(call, moment);
        // A hook that has set another one stays away.
        self.hook.lock().get_or_insert(hook);
        error.map_or(Ok(()), Err)
    }

    fn follows(&self, placing: &Placing<'_>) -> Result<bool, JournalError> {
        let limit = JournalReadLimit { records_max: usize::MAX, bytes_max: usize::MAX };
        let records = self.inner.read(1, limit)?;
        let Some((n, bytes)) = records.last() else { return Ok(placing.n == 1) };
        let tip = record::decode_head(bytes).map(|(_, tip)| tip);
        Ok(*n + 1 == placing.n && tip == Ok(placing.prev))
    }
}

impl Journal for Wire {
    fn check(&self) -> Result<Fitness, JournalError> {
        let fitness = self.request(JournalCall::Check, || self.inner.check())?;
        let head_guard = if self.guards_head { HeadGuard::Engine } else { fitness.head_guard };
        Ok(Fitness { head_guard, is_replicated: self.is_replicated.load(Relaxed), ..fitness })
    }

    fn is_still_replicated(&self) -> Result<bool, JournalError> {
        Ok(self.is_replicated.load(Relaxed))
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        self.request(JournalCall::Place { n: placing.n }, || {
            if self.guards_head && !self.follows(placing)? {
                return Ok(Placed::Taken);
            }
            self.inner.place(placing)
        })
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        self.request(JournalCall::Read { from }, || self.inner.read(from, limit))
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        let read = self.request(JournalCall::Manifest, || self.inner.manifest())?;
        let engine_time_ms = *self.engine_time_ms.lock();
        Ok(read.map(|read| ManifestRead { engine_time_ms, ..read }))
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        self.request(JournalCall::SetManifest, || self.inner.set_manifest(new, was))
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        self.request(JournalCall::PutPart, || self.inner.put_part(name, bytes))
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        self.request(JournalCall::GetPart, || self.inner.get_part(name))
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        self.request(JournalCall::ListParts, || self.inner.parts())
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.request(JournalCall::DeletePart, || self.inner.delete_part(name))
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        self.request(JournalCall::DeleteBelow { n }, || self.inner.delete_below(n))
    }

    fn engine_time_ms(&self) -> Option<u64> {
        *self.engine_time_ms.lock()
    }
}
