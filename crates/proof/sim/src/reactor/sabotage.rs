//! Deliberate bugs of `sys/loop`, to prove that the checkers find them. The engine itself stays correct: a bug is made
//! by changing its limits, the requests and the time on their way in, its calls of the poller, and its replies and
//! deadlines on their way out. Some bugs are requests that the guest never made. The record sees the guest's requests
//! and the changed replies.

use std::num::NonZeroU64;

use millrace_reactor::zcl1::Frame;
use millrace_reactor::{
    ANSWER_BYTES_MAX, FirstDue, LoopLimits, MS, MonoNs, PollEvent, PollReply, Readiness, Request, SysLoop,
    TimerId, Trigger, WatchId, Written, ZabiError,
};

use super::poller::WorldPoller;
use super::record::{Record, Timer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// Every POLL looks for ready watches in the same order: those of computed handles, by their registration.
    FirstWatchFirst,
    /// Watches take every slot of a reply that they can fill, if it has two or more.
    WatchesBeforeTimers,
    /// A timer is delivered one nanosecond before it is due.
    FireEarly,
    /// A repeating timer that missed a period is dropped.
    DropCoalesced,
    /// The next due time of a repeating timer is its delivery plus the interval.
    DriftFromGrid,
    /// `more` is set whenever the reply is full.
    MoreWhenFull,
    /// A watch stays on the number of a handle that has ended.
    KeepEndedHandle,
    /// A new watch on a number drops the watches of the ended handles that had it.
    ForgetWatchOnReuse,
    /// A request is executed although its answer has no room.
    ExecuteWhenFull,
    /// Bytes after a truncated frame are always taken for the rest of it.
    NeverStartOver,
    /// A handle that is ready in a way that no watch asks for stays level-triggered.
    NeverEdge,
    /// A handle that is edge-triggered stays so, although a watch asks for its state.
    NeverLevelAgain,
    /// A one-shot is armed again, a millisecond later.
    OneShotTwice,
    /// Of timers with equal due times, the one that was armed last fires first.
    LatestArmedFirst,
    /// The time at which the next timer is due is missing from the deadline that the shell is told.
    SleepThroughTimers,
    /// A reply may have one event more than the guest has room for.
    OneEventTooMany,
}

/// Stands between one loop and its guest. Without a sabotage nothing is changed.
#[derive(Debug, Default)]
pub(super) struct Saboteur {
    sabotage: Option<Sabotage>,
    /// Bytes of the present write that the engine got in an earlier write of their own.
    split_off: usize,
    /// Requests to be made in the guest's name; their answers are dropped.
    own: Vec<Request>,
}

impl Saboteur {
    pub(super) fn new(sabotage: Option<Sabotage>) -> Saboteur {
        Saboteur { sabotage, ..Saboteur::default() }
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Returns the limits that the engine gets instead of the guest's, which the record uses.
    pub(super) fn limits(&self, limits: LoopLimits) -> LoopLimits {
        let beyond = if self.is(Sabotage::ExecuteWhenFull) { ANSWER_BYTES_MAX } else { 0 };
        LoopLimits { output_bytes_max: limits.output_bytes_max + beyond, ..limits }
    }

    /// Returns the request that is written instead of the guest's.
    pub(super) fn request(&self, request: Request) -> Request {
        match request {
            Request::Poll { max_events, timeout } if self.is(Sabotage::OneEventTooMany) => {
                Request::Poll { max_events: max_events.saturating_add(1), timeout }
            }
            request => request,
        }
    }

    /// Returns whether the engine is told that a handle has ended.
    pub(super) fn tells_ended(&self) -> bool {
        !self.is(Sabotage::KeepEndedHandle)
    }

    /// Writes to the loop. `follows_cut`: the frame before these bytes is incomplete and stays so.
    pub(super) fn write(
        &mut self,
        sys_loop: &mut SysLoop,
        now: u64,
        bytes: &[u8],
        follows_cut: bool,
        poller: &mut WorldPoller,
    ) -> Written {
        self.split_off = 0;
        // The engine recognises a new request only by a write that begins with the whole of it.
        if follows_cut && self.is(Sabotage::NeverStartOver) {
            let written = sys_loop.write(MonoNs(now), &bytes[..1], poller);
            if written != Written::Returned(Ok(1)) {
                return written;
            }
            self.split_off = 1;
        }
        let written = sys_loop.write(MonoNs(now), &bytes[self.split_off..], poller);
        self.joined(written)
    }

    /// Continues a write whose POLL waits.
    pub(super) fn resume(
        &self,
        sys_loop: &mut SysLoop,
        now: u64,
        bytes: &[u8],
        poller: &mut WorldPoller,
        record: &Record,
    ) -> Written {
        let is_due_next = record.timers.values().any(|timer| timer.due == now + 1);
        let early_ns = u64::from(is_due_next && self.is(Sabotage::FireEarly));
        let written = sys_loop.resume(MonoNs(now + early_ns), &bytes[self.split_off..], poller);
        self.joined(written)
    }

    /// Returns the result of a write that was split.
    fn joined(&self, written: Written) -> Written {
        match written {
            Written::Returned(Ok(consumed)) => Written::Returned(Ok(self.split_off + consumed)),
            Written::Returned(Err(ZabiError::Again)) if self.split_off > 0 => {
                Written::Returned(Ok(self.split_off))
            }
            written => written,
        }
    }

    /// Puts the ready watches of computed handles into the same order before every call: a handle that is not ready for
    /// a moment goes to the end of the engine's queue.
    pub(super) fn reorder_ready(&self, sys_loop: &mut SysLoop, poller: &WorldPoller, record: &Record) {
        if !self.is(Sabotage::FirstWatchFirst) {
            return;
        }
        for (token, number) in poller.registered() {
            if let Some(handle) = record.handles.get(&number.get()).filter(|handle| handle.is_computed) {
                sys_loop.set_readiness(token, Readiness::NONE);
                sys_loop.set_readiness(token, handle.state);
            }
        }
    }

    /// Returns the deadline that the shell is told instead of the engine's.
    pub(super) fn deadline(&self, sys_loop: &SysLoop, record: &Record) -> Option<u64> {
        match &record.poll {
            Some(poll) if self.is(Sabotage::SleepThroughTimers) => poll.deadline,
            _ => sys_loop.next_deadline().map(|at| at.0),
        }
    }

    /// Changes the reply of the POLL that is open. The record does not know the reply yet.
    pub(super) fn reply(&mut self, bytes: &mut Vec<u8>, record: &Record) {
        let (Some(sabotage), Some(poll)) = (self.sabotage, &record.poll) else { return };
        let Ok(frame) = Frame::decode(bytes) else { return };
        let Ok(mut reply) = PollReply::decode(frame.payload) else { return };
        let slots = record.slots(poll);
        match sabotage {
            Sabotage::MoreWhenFull => reply.more |= reply.events.len() == slots,
            Sabotage::WatchesBeforeTimers if slots > 1 => watches_first(&mut reply, record),
            Sabotage::LatestArmedFirst => latest_armed_first(&mut reply, record),
            Sabotage::FireEarly => {
                for event in &mut reply.events {
                    if let PollEvent::Timer { at, .. } = event {
                        *at = MonoNs(record.now);
                    }
                }
            }
            sabotage => self.own.extend(reply.events.iter().filter_map(|event| match event {
                PollEvent::Timer { timer_id, .. } => {
                    let timer = record.timers.get(&timer_id.0.get())?;
                    after_delivery(sabotage, *timer_id, timer, record.now)
                }
                PollEvent::Ready { .. } => None,
            })),
        }
        let mut payload = Vec::new();
        reply.encode(&mut payload);
        if let Ok(changed) = Frame::encode(frame.header, &payload) {
            *bytes = changed;
        }
    }

    /// Makes requests that the guest does not know of. The loop must have no unread reply and no incomplete frame.
    pub(super) fn interfere(&mut self, sys_loop: &mut SysLoop, poller: &mut WorldPoller, record: &Record) {
        if self.is(Sabotage::ForgetWatchOnReuse) {
            self.own.extend(on_reused(record));
        }
        for request in self.own.drain(..).filter(|request| still_applies(request, record)) {
            sys_loop.write(MonoNs(record.now), &request.frame(0), poller);
            while sys_loop.read(&mut [0; 128]).is_ok() {}
        }
    }
}

/// Returns the trigger that the poller gets for a change of a registration; `None`: the poller does not get to know it.
pub(super) fn trigger(
    sabotage: Option<Sabotage>,
    trigger: Trigger,
    has_same_interest: bool,
) -> Option<Trigger> {
    match (sabotage, trigger) {
        (Some(Sabotage::NeverEdge), _) => Some(Trigger::Level),
        (Some(Sabotage::NeverLevelAgain), Trigger::Level) if has_same_interest => None,
        _ => Some(trigger),
    }
}

fn watches_first(reply: &mut PollReply, record: &Record) {
    let slots = reply.events.len();
    let (mut events, timers): (Vec<PollEvent>, Vec<PollEvent>) =
        reply.events.iter().partition(|event| matches!(event, PollEvent::Ready { .. }));
    for (id, readiness) in record.ready() {
        let (Some(watch), Some(id)) = (record.watches.get(&id), NonZeroU64::new(id)) else { continue };
        let is_there =
            |event: &PollEvent| matches!(event, PollEvent::Ready { watch_id, .. } if watch_id.0 == id);
        if !events.iter().any(is_there) {
            events.push(PollEvent::Ready { watch_id: WatchId(id), handle: watch.handle, readiness });
        }
    }
    events.extend(timers);
    events.truncate(slots);
    reply.events = events;
}

fn latest_armed_first(reply: &mut PollReply, record: &Record) {
    let mut due = record.due();
    due.sort_by_key(|(_, timer)| (timer.due, std::cmp::Reverse(timer.order)));
    let mut ids = due.into_iter().filter_map(|(id, _)| NonZeroU64::new(id));
    for event in &mut reply.events {
        if let PollEvent::Timer { timer_id, .. } = event
            && let Some(id) = ids.next()
        {
            *timer_id = TimerId(id);
        }
    }
}

/// Returns the request that follows the delivery of a timer.
fn after_delivery(sabotage: Sabotage, timer_id: TimerId, timer: &Timer, now: u64) -> Option<Request> {
    let interval_ns = NonZeroU64::new(timer.interval_ns);
    let arm_after = |ns: u64| {
        let due = FirstDue::At(MonoNs(now).after_ns(ns));
        Request::TimerArm { timer_id, due, interval_ns }
    };
    match (sabotage, interval_ns) {
        (Sabotage::OneShotTwice, None) => Some(arm_after(MS)),
        (Sabotage::DriftFromGrid, Some(interval_ns)) => Some(arm_after(interval_ns.get())),
        (Sabotage::DropCoalesced, Some(interval_ns))
            if now.saturating_sub(timer.due) >= interval_ns.get() =>
        {
            Some(Request::TimerCancel { timer_id })
        }
        _ => None,
    }
}

/// Whether a request is still about the timer that was delivered: the guest may have armed or cancelled it since.
fn still_applies(request: &Request, record: &Record) -> bool {
    match request {
        Request::TimerArm { timer_id, interval_ns: None, .. } => {
            !record.timers.contains_key(&timer_id.0.get())
        }
        Request::TimerArm { timer_id, .. } | Request::TimerCancel { timer_id } => {
            record.timers.get(&timer_id.0.get()).is_some_and(|timer| timer.has_fired)
        }
        _ => true,
    }
}

/// Returns UNWATCH for the watches of ended handles whose number is watched anew.
fn on_reused(record: &Record) -> Vec<Request> {
    let is_watched_anew = |number: u32| {
        let opening = record.handles.get(&number).map(|handle| handle.opening);
        record.watches.values().any(|watch| Some(watch.opening) == opening)
    };
    let is_ended = |number: u32, opening| record.handles.get(&number).is_none_or(|at| at.opening != opening);
    let forgotten = record
        .watches
        .iter()
        .filter(|(_, watch)| is_ended(watch.handle, watch.opening) && is_watched_anew(watch.handle));
    forgotten
        .filter_map(|(id, _)| Some(Request::Unwatch { watch_id: WatchId(NonZeroU64::new(*id)?) }))
        .collect()
}
