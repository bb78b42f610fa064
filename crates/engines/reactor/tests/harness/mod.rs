//! A shell for tests: a loop, a scripted poller, and a virtual clock that jumps to the next deadline.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::num::{NonZeroU32, NonZeroU64};

use millrace_reactor::zcl1::{ErrorPayload, Frame, STATUS_OK};
use millrace_reactor::{
    FirstDue, HandleNumber, LoopLimits, MS, MonoNs, PollEvent, PollReply, PollTimeout, Readiness, Request,
    ScriptedPoller, SysLoop, TimerId, WatchId, Written, ZabiError,
};

pub(crate) const READABLE: Readiness = Readiness::READABLE;
pub(crate) const WRITABLE: Readiness = Readiness::WRITABLE;
pub(crate) const HUP: Readiness = Readiness::HUP;
pub(crate) const ERROR: Readiness = Readiness::ERROR;
pub(crate) const NONE: Readiness = Readiness::NONE;

/// More than any test has handles: rounds of the poller cover all of them, unless a test sets `reports_max`.
const REPORTS_MAX: usize = 1 << 20;

pub(crate) struct Harness {
    pub(crate) sys_loop: SysLoop,
    pub(crate) poller: ScriptedPoller,
    pub(crate) now: MonoNs,
    pub(crate) reports_max: usize,
    /// Whether to check the invariants after each write, which reads every watch and timer.
    pub(crate) checks_invariants: bool,
    rid: u32,
}

/// The answer to a request: `Err` is the message of an error frame.
pub(crate) type Answer = Result<(), String>;

impl Harness {
    pub(crate) fn new() -> Harness {
        Harness::with(LoopLimits::default())
    }

    pub(crate) fn with(limits: LoopLimits) -> Harness {
        Harness {
            sys_loop: SysLoop::new(limits),
            poller: ScriptedPoller::default(),
            now: MonoNs(1_000 * MS),
            reports_max: REPORTS_MAX,
            checks_invariants: true,
            rid: 0,
        }
    }

    pub(crate) fn polled(&mut self, number: u32, state: Readiness) {
        self.poller.add_polled(handle(number), state);
    }

    pub(crate) fn computed(&mut self, number: u32, state: Readiness) {
        self.poller.add_computed(handle(number), state);
    }

    pub(crate) fn set(&mut self, number: u32, state: Readiness) {
        if let Some(token) = self.poller.set(handle(number), state) {
            self.sys_loop.set_readiness(token, state);
        }
    }

    pub(crate) fn end(&mut self, number: u32) {
        self.sys_loop.end_handle(handle(number), &mut self.poller);
        self.poller.remove(handle(number));
    }

    /// Writes like a guest; returns `None` if a POLL would wait for ever.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> Option<Result<usize, ZabiError>> {
        let mut written = self.sys_loop.write(self.now, bytes, &mut self.poller);
        loop {
            if let Written::Returned(result) = written {
                if self.checks_invariants {
                    self.sys_loop.check_invariants().expect("the invariants hold");
                }
                return Some(result);
            }
            let (reports, coverage) = self.poller.round(self.reports_max);
            self.sys_loop.observe(&reports, coverage, &mut self.poller);
            written = self.sys_loop.resume(self.now, bytes, &mut self.poller);
            if written == Written::Waiting {
                self.now = self.now.max(self.sys_loop.next_deadline()?);
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, ZabiError> {
        self.try_write(bytes).expect("no POLL waits for ever")
    }

    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.sys_loop.gauges().output_bytes.max(1)];
        let count = self.sys_loop.read(&mut bytes).ok()?;
        bytes.truncate(count);
        Some(bytes)
    }

    pub(crate) fn read_all(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.read()).collect()
    }

    /// Sends a request and returns its reply's payload, or the message of its error.
    pub(crate) fn send(&mut self, request: Request) -> Result<Vec<u8>, String> {
        self.rid += 1;
        let bytes = request.frame(self.rid);
        assert_eq!(self.write(&bytes), Ok(bytes.len()));
        let reply = self.read().expect("a reply");
        let frame = Frame::decode(&reply).expect("a frame");
        frame.header.check_reply().expect("a reply's header");
        assert_eq!((frame.header.op, frame.header.rid), (request.op(), self.rid));
        answer(&frame)
    }

    pub(crate) fn watch(&mut self, id: u64, number: u32, interest: Readiness) -> Answer {
        self.send(watch(id, number, interest)).map(|payload| assert!(payload.is_empty()))
    }

    pub(crate) fn unwatch(&mut self, id: u64) -> Answer {
        self.send(unwatch(id)).map(|payload| assert!(payload.is_empty()))
    }

    pub(crate) fn arm(&mut self, id: u64, due: FirstDue, interval_ns: u64) -> Answer {
        self.send(arm(id, due, interval_ns)).map(|payload| assert!(payload.is_empty()))
    }

    pub(crate) fn cancel(&mut self, id: u64) -> Answer {
        self.send(cancel(id)).map(|payload| assert!(payload.is_empty()))
    }

    /// A POLL that does not wait.
    pub(crate) fn poll(&mut self, max_events: u32) -> PollReply {
        self.poll_for(max_events, PollTimeout::Ms(0))
    }

    pub(crate) fn poll_for(&mut self, max_events: u32, timeout: PollTimeout) -> PollReply {
        let payload = self.send(poll(max_events, timeout)).expect("POLL is answered");
        PollReply::decode(&payload).expect("a reply of POLL")
    }

    pub(crate) fn advance_ns(&mut self, ns: u64) {
        self.now = self.now.after_ns(ns);
    }
}

pub(crate) fn answer(frame: &Frame<'_>) -> Result<Vec<u8>, String> {
    if frame.header.status == STATUS_OK {
        return Ok(frame.payload.to_vec());
    }
    let error = ErrorPayload::decode(frame.payload).expect("an error payload");
    assert_eq!((error.trace, error.detail), ("sys.loop", ""));
    Err(error.message.to_owned())
}

pub(crate) fn handle(number: u32) -> HandleNumber {
    HandleNumber::new(number).expect("a handle's number")
}

pub(crate) fn watch_id(id: u64) -> WatchId {
    WatchId(NonZeroU64::new(id).expect("not 0"))
}

pub(crate) fn timer_id(id: u64) -> TimerId {
    TimerId(NonZeroU64::new(id).expect("not 0"))
}

pub(crate) fn watch(id: u64, handle: u32, interest: Readiness) -> Request {
    Request::Watch { handle, interest, watch_id: watch_id(id) }
}

pub(crate) fn unwatch(id: u64) -> Request {
    Request::Unwatch { watch_id: watch_id(id) }
}

pub(crate) fn arm(id: u64, due: FirstDue, interval_ns: u64) -> Request {
    Request::TimerArm { timer_id: timer_id(id), due, interval_ns: NonZeroU64::new(interval_ns) }
}

pub(crate) fn cancel(id: u64) -> Request {
    Request::TimerCancel { timer_id: timer_id(id) }
}

pub(crate) fn poll(max_events: u32, timeout: PollTimeout) -> Request {
    Request::Poll { max_events: NonZeroU32::new(max_events).expect("not 0"), timeout }
}

pub(crate) fn ready(id: u64, handle: u32, readiness: Readiness) -> PollEvent {
    PollEvent::Ready { watch_id: watch_id(id), handle, readiness }
}

pub(crate) fn timer(id: u64, at: MonoNs) -> PollEvent {
    PollEvent::Timer { timer_id: timer_id(id), at }
}

pub(crate) fn failed(message: &str) -> Answer {
    Err(message.to_owned())
}

/// The ids of all events, READY and TIMER alike.
pub(crate) fn ids(reply: &PollReply) -> Vec<u64> {
    let id = |event: &PollEvent| match event {
        PollEvent::Ready { watch_id, .. } => watch_id.0.get(),
        PollEvent::Timer { timer_id, .. } => timer_id.0.get(),
    };
    reply.events.iter().map(id).collect()
}
