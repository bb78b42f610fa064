//! `sys/loop`: the engine of `millrace-reactor` with the operating system's poller around it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use millrace_reactor::{
    Coverage, HandleNumber, NotWatchable, Poller, Readiness, Registration, SourceReport, SourceToken,
    SysLoop, Trigger, Written, ZabiError,
};

use crate::clock::mono_now;
use crate::handle::WatchSource;
use crate::handles::Handles;
use crate::limits::Limits;
use crate::os_poller::{IoEffect, OsPoller};
use crate::signals::{LoopSignal, ProcessSignals, SignalId};

/// An open handle of `sys/loop`.
#[derive(Debug)]
pub(crate) struct GuestLoop {
    engine: SysLoop,
    sources: LoopSources,
    signals: Arc<ProcessSignals>,
    /// Scratch for the reports of one round.
    reports: Vec<SourceReport>,
}

/// The registrations of the watched handles: with the operating system, or with the signals of their capabilities.
#[derive(Debug)]
struct LoopSources {
    os: OsPoller,
    signal: Arc<LoopSignal>,
    computed: BTreeMap<SignalId, (HandleNumber, SourceToken)>,
    signal_of: BTreeMap<HandleNumber, SignalId>,
}

impl GuestLoop {
    pub(crate) fn open(limits: &Limits, signals: &Arc<ProcessSignals>) -> io::Result<GuestLoop> {
        let (os, waker) = OsPoller::new(limits.os_events_max)?;
        let signal = Arc::new(LoopSignal::new(waker));
        signals.add_loop(&signal);
        let sources = LoopSources { os, signal, computed: BTreeMap::new(), signal_of: BTreeMap::new() };
        let engine = SysLoop::new(limits.sys_loop);
        Ok(GuestLoop { engine, sources, signals: Arc::clone(signals), reports: Vec::new() })
    }

    pub(crate) fn read(&mut self, to: &mut [u8]) -> Result<usize, ZabiError> {
        self.engine.read(to)
    }

    /// Executes the requests in `input`. A POLL blocks here, until it has events, its timeout is over, or an
    /// [`crate::Interrupter`] ends it.
    pub(crate) fn write(&mut self, input: &[u8], handles: &Handles) -> Result<usize, ZabiError> {
        self.take_changes(handles);
        let sources = &mut Watching { sources: &mut self.sources, handles };
        let mut written = self.engine.write(mono_now(), input, sources);
        loop {
            match written {
                Written::Returned(result) => return result,
                Written::Waiting => {
                    self.wait(handles);
                    let sources = &mut Watching { sources: &mut self.sources, handles };
                    written = self.engine.resume(mono_now(), input, sources);
                }
            }
        }
    }

    /// Waits for the operating system, until the engine's deadline, and tells the engine what is ready.
    fn wait(&mut self, handles: &Handles) {
        let mut reports = std::mem::take(&mut self.reports);
        reports.clear();
        let round = self.sources.os.round(mono_now(), self.engine.next_deadline(), &mut reports);
        if let Err(error) = round {
            tracing::error!(%error, "the poller of a guest's loop failed; its POLL ends");
            self.engine.interrupt();
        }
        self.sources.signal.reset();
        let sources = &mut Watching { sources: &mut self.sources, handles };
        self.engine.observe(&reports, Coverage::All, sources);
        self.reports = reports;
        self.take_changes(handles);
        if self.signals.is_ended() || self.signals.take_interrupt() {
            self.engine.interrupt();
        }
    }

    /// Tells the engine the changed states of handles whose capability computes them.
    fn take_changes(&mut self, handles: &Handles) {
        for id in self.sources.signal.take_changes() {
            let Some(&(handle, token)) = self.sources.computed.get(&id) else { continue };
            if let Some(WatchSource::Computed { state, .. }) = handles.watch_source(handle) {
                self.engine.set_readiness(token, state);
            }
        }
    }

    /// The guest has used a handle with a descriptor.
    pub(crate) fn used(&mut self, handle: HandleNumber, effect: IoEffect) {
        self.sources.os.used(handle, effect);
    }

    pub(crate) fn end_handle(&mut self, handle: HandleNumber, handles: &Handles) {
        self.engine.end_handle(handle, &mut Watching { sources: &mut self.sources, handles });
    }

    pub(crate) fn watches_handle(&self, handle: HandleNumber) -> bool {
        self.engine.watches_handle(handle)
    }

    pub(crate) fn close(&mut self, handles: &Handles) {
        self.engine.close(&mut Watching { sources: &mut self.sources, handles });
        self.signals.remove_loop(&self.sources.signal);
    }
}

/// The engine's port: registers handles of this process.
struct Watching<'a> {
    sources: &'a mut LoopSources,
    handles: &'a Handles,
}

impl Poller for Watching<'_> {
    fn register(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
    ) -> Result<Registration, NotWatchable> {
        match self.handles.watch_source(handle).ok_or(NotWatchable)? {
            WatchSource::Descriptor(fd) => {
                let registered = self.sources.os.register(handle, fd, token, interest);
                registered.map(|()| Registration::Polled).map_err(|error| refused(handle, &error))
            }
            WatchSource::Computed { signal, .. } => {
                self.sources.signal.watch(signal);
                self.sources.computed.insert(signal, (handle, token));
                self.sources.signal_of.insert(handle, signal);
                // Read after the signal is watched, so that a change in between is not lost.
                match self.handles.watch_source(handle) {
                    Some(WatchSource::Computed { state, .. }) => Ok(Registration::Computed { now: state }),
                    _ => Err(NotWatchable),
                }
            }
        }
    }

    fn modify(
        &mut self,
        handle: HandleNumber,
        _token: SourceToken,
        interest: Readiness,
        trigger: Trigger,
    ) -> Result<(), NotWatchable> {
        if self.sources.signal_of.contains_key(&handle) {
            return Ok(());
        }
        self.sources.os.modify(handle, interest, trigger).map_err(|error| refused(handle, &error))
    }

    fn deregister(&mut self, handle: HandleNumber, _token: SourceToken) {
        match self.sources.signal_of.remove(&handle) {
            Some(signal) => {
                self.sources.computed.remove(&signal);
                self.sources.signal.unwatch(signal);
            }
            None => self.sources.os.deregister(handle),
        }
    }
}

fn refused(handle: HandleNumber, error: &io::Error) -> NotWatchable {
    tracing::debug!(%error, handle = handle.get(), "the operating system does not poll a handle");
    NotWatchable
}
