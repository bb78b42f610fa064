//! A poller for tests and simulation: handles whose readiness the test sets, reported the way a level-triggered poller of
//! an operating system does.

use std::collections::BTreeMap;

use crate::handles::HandleNumber;
use crate::poller::{Coverage, NotWatchable, Poller, Registration, Report, SourceToken};
use crate::readiness::Readiness;

/// A call that the loop made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollerCall {
    Register { handle: HandleNumber, interest: Readiness },
    Modify { handle: HandleNumber, interest: Readiness },
    Deregister { handle: HandleNumber },
}

#[derive(Debug, Default)]
pub struct ScriptedPoller {
    handles: BTreeMap<HandleNumber, ScriptedHandle>,
    registered: BTreeMap<SourceToken, ScriptedSource>,
    /// Where the next round begins: an operating system reports the handles that did not fit first.
    next: Option<SourceToken>,
    /// Every call that was not refused, in order.
    pub calls: Vec<PollerCall>,
    /// Refuse every registration and change, as an operating system without resources does.
    pub is_failing: bool,
}

#[derive(Clone, Copy, Debug)]
struct ScriptedHandle {
    state: Readiness,
    is_computed: bool,
}

#[derive(Clone, Copy, Debug)]
struct ScriptedSource {
    handle: HandleNumber,
    interest: Readiness,
}

impl ScriptedPoller {
    /// Adds a handle that the operating system polls.
    pub fn add_polled(&mut self, handle: HandleNumber, state: Readiness) {
        self.handles.insert(handle, ScriptedHandle { state, is_computed: false });
    }

    /// Adds a handle whose capability computes its readiness.
    pub fn add_computed(&mut self, handle: HandleNumber, state: Readiness) {
        self.handles.insert(handle, ScriptedHandle { state, is_computed: true });
    }

    /// Removes a handle that was ended; tell the loop with [`crate::SysLoop::end_handle`].
    pub fn remove(&mut self, handle: HandleNumber) {
        self.handles.remove(&handle);
    }

    /// Changes the state of a handle. Returns the token to hand to [`crate::SysLoop::set_readiness`] if the handle is
    /// registered and computes its readiness; a polled handle is found by the next round.
    pub fn set(&mut self, handle: HandleNumber, state: Readiness) -> Option<SourceToken> {
        let entry = self.handles.get_mut(&handle)?;
        entry.state = state;
        let is_computed = entry.is_computed;
        let mut registered = self.registered.iter().filter(|(_, source)| source.handle == handle);
        registered.next().filter(|_| is_computed).map(|(token, _)| *token)
    }

    /// Returns what the handle is registered for; `None` if it is not.
    pub fn interest(&self, handle: HandleNumber) -> Option<Readiness> {
        self.registered.values().find(|source| source.handle == handle).map(|source| source.interest)
    }

    /// Returns the number of handles that are registered.
    pub fn len(&self) -> usize {
        self.registered.len()
    }

    pub fn is_empty(&self) -> bool {
        self.registered.is_empty()
    }

    /// Reports at most `reports_max` polled handles that are ready, beginning after the last one of the round before.
    pub fn round(&mut self, reports_max: usize) -> (Vec<Report>, Coverage) {
        let after = self.next.take();
        let from_next = self.registered.iter().filter(|(token, _)| Some(**token) >= after);
        let before_next = self.registered.iter().filter(|(token, _)| Some(**token) < after);
        let mut ready = from_next.chain(before_next).filter_map(|(token, source)| {
            let handle = self.handles.get(&source.handle).filter(|handle| !handle.is_computed)?;
            let state = handle.state & (source.interest | Readiness::HUP | Readiness::ERROR);
            (!state.is_empty()).then_some(Report { token: *token, state })
        });
        let reports: Vec<Report> = ready.by_ref().take(reports_max).collect();
        let next = ready.next().map(|report| report.token);
        let coverage = if next.is_some() { Coverage::Partial } else { Coverage::All };
        self.next = next;
        (reports, coverage)
    }
}

impl Poller for ScriptedPoller {
    fn register(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
    ) -> Result<Registration, NotWatchable> {
        let entry = self.handles.get(&handle).filter(|_| !self.is_failing).ok_or(NotWatchable)?;
        self.registered.insert(token, ScriptedSource { handle, interest });
        self.calls.push(PollerCall::Register { handle, interest });
        Ok(match entry.is_computed {
            true => Registration::Computed { now: entry.state },
            false => Registration::Polled,
        })
    }

    fn modify(
        &mut self,
        handle: HandleNumber,
        token: SourceToken,
        interest: Readiness,
    ) -> Result<(), NotWatchable> {
        let source = self.registered.get_mut(&token).filter(|_| !self.is_failing).ok_or(NotWatchable)?;
        source.interest = interest;
        self.calls.push(PollerCall::Modify { handle, interest });
        Ok(())
    }

    fn deregister(&mut self, handle: HandleNumber, token: SourceToken) {
        self.registered.remove(&token);
        self.calls.push(PollerCall::Deregister { handle });
    }
}
