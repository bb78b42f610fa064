//! A poller for tests and simulation: the test sets the readiness of handles, and the poller reports them like a
//! level-triggered poller of an operating system.

use std::collections::BTreeMap;

use crate::handles::HandleNumber;
use crate::poller::{Coverage, NotWatchable, Poller, Registration, SourceReport, SourceToken, Trigger};
use crate::readiness::Readiness;

/// A call that the loop made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollerCall {
    Register { handle: HandleNumber, interest: Readiness },
    Modify { handle: HandleNumber, interest: Readiness, trigger: Trigger },
    Deregister { handle: HandleNumber },
}

#[derive(Debug, Default)]
pub struct ScriptedPoller {
    handles: BTreeMap<HandleNumber, ScriptedHandle>,
    registered: BTreeMap<SourceToken, ScriptedSource>,
    /// Where the next round begins: like an operating system, it first reports the handles that did not fit into the
    /// last one.
    next: Option<SourceToken>,
    /// Every call that was not refused, in order.
    pub calls: Vec<PollerCall>,
    /// Refuse every registration and change, like an operating system that has run out of resources.
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
    trigger: Trigger,
    /// The state that the last round found, to detect edges.
    last: Readiness,
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

    /// Removes a handle that has ended. The test must also tell the loop, with [`crate::SysLoop::end_handle`].
    pub fn remove(&mut self, handle: HandleNumber) {
        self.handles.remove(&handle);
    }

    /// Changes the state of a handle. Returns the token for [`crate::SysLoop::set_readiness`] if the handle is
    /// registered and has computed readiness; the next round finds a polled handle by itself.
    pub fn set(&mut self, handle: HandleNumber, state: Readiness) -> Option<SourceToken> {
        let entry = self.handles.get_mut(&handle)?;
        entry.state = state;
        let is_computed = entry.is_computed;
        let mut registered = self.registered.iter().filter(|(_, source)| source.handle == handle);
        registered.next().filter(|_| is_computed).map(|(token, _)| *token)
    }

    /// Returns the interest that the handle is registered with; `None` if it is not registered.
    pub fn interest(&self, handle: HandleNumber) -> Option<Readiness> {
        self.source(handle).map(|source| source.interest)
    }

    /// Returns the handle's trigger; `None` if the handle is not registered.
    pub fn trigger(&self, handle: HandleNumber) -> Option<Trigger> {
        self.source(handle).map(|source| source.trigger)
    }

    /// Returns the number of registered handles.
    pub fn len(&self) -> usize {
        self.registered.len()
    }

    pub fn is_empty(&self) -> bool {
        self.registered.is_empty()
    }

    /// Reports at most `reports_max` polled handles that are ready, beginning after the last one of the previous round.
    pub fn round(&mut self, reports_max: usize) -> (Vec<SourceReport>, Coverage) {
        let first = self.next.take();
        let handles = &self.handles;
        let report = |(token, source): (&SourceToken, &mut ScriptedSource)| {
            let handle = handles.get(&source.handle).filter(|handle| !handle.is_computed)?;
            let state = handle.state & (source.interest | Readiness::HUP | Readiness::ERROR);
            let is_new = std::mem::replace(&mut source.last, state) != state;
            let is_reported = !state.is_empty() && (is_new || source.trigger == Trigger::Level);
            is_reported.then_some(SourceReport { token: *token, state })
        };
        let mut ready: Vec<SourceReport> = self.registered.iter_mut().filter_map(report).collect();
        let before_first = ready.partition_point(|report| Some(report.token) < first);
        ready.rotate_left(before_first);
        let left_out = ready.split_off(ready.len().min(reports_max));
        for report in &left_out {
            // An edge that did not fit into this round is reported by the next.
            self.registered.entry(report.token).and_modify(|source| source.last = Readiness::NONE);
        }
        self.next = left_out.first().map(|report| report.token);
        let coverage = if left_out.is_empty() { Coverage::All } else { Coverage::Partial };
        (ready, coverage)
    }

    fn source(&self, handle: HandleNumber) -> Option<&ScriptedSource> {
        self.registered.values().find(|source| source.handle == handle)
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
        let source = ScriptedSource { handle, interest, trigger: Trigger::Level, last: Readiness::NONE };
        self.registered.insert(token, source);
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
        trigger: Trigger,
    ) -> Result<(), NotWatchable> {
        let source = self.registered.get_mut(&token).filter(|_| !self.is_failing).ok_or(NotWatchable)?;
        *source = ScriptedSource { handle, interest, trigger, last: Readiness::NONE };
        self.calls.push(PollerCall::Modify { handle, interest, trigger });
        Ok(())
    }

    fn deregister(&mut self, handle: HandleNumber, token: SourceToken) {
        self.registered.remove(&token);
        self.calls.push(PollerCall::Deregister { handle });
    }
}
