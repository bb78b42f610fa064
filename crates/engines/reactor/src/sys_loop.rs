//! The engine's public interface: a `SysLoop` is one open handle of `sys/loop`.

use crate::counters::{Counters, Gauges};
use crate::handles::HandleNumber;
use crate::limits::LoopLimits;
use crate::messages::{FirstDue, OP_POLL, Request, RequestError};
use crate::poll::{OpenPoll, Sharing};
use crate::poller::{Coverage, Poller, SourceReport, SourceToken};
use crate::readiness::Readiness;
use crate::time::MonoNs;
use crate::timers::LoopTimers;
use crate::watches::WatchTable;
use crate::zcl1::{FrameClass, FrameQueue, FrameReader, Header};

/// See the crate's documentation. The methods for the guest's reads and writes are in `stream.rs`.
#[derive(Debug)]
pub struct SysLoop {
    pub(crate) limits: LoopLimits,
    pub(crate) reader: FrameReader,
    pub(crate) output: FrameQueue,
    pub(crate) watches: WatchTable,
    pub(crate) timers: LoopTimers,
    sharing: Sharing,
    /// The latest time the engine was given: its time never goes back.
    pub(crate) now: MonoNs,
    pub(crate) open_poll: Option<OpenPoll>,
    interrupted: bool,
    /// Bytes of the current write consumed so far.
    pub(crate) consumed: usize,
    /// A reused buffer for the payloads of replies.
    payload: Vec<u8>,
    pub(crate) counters: Counters,
}

impl SysLoop {
    pub fn new(limits: LoopLimits) -> SysLoop {
        let limits = limits.normalised();
        SysLoop {
            limits,
            reader: FrameReader::new(limits.frame_bytes_max),
            output: FrameQueue::new(limits.output_bytes_max),
            watches: WatchTable::new(limits.watches_max),
            timers: LoopTimers::default(),
            sharing: Sharing::default(),
            now: MonoNs::default(),
            open_poll: None,
            interrupted: false,
            consumed: 0,
            payload: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Applies the reports of one call of the operating system's poller.
    pub fn observe(&mut self, reports: &[SourceReport], coverage: Coverage, poller: &mut impl Poller) {
        self.watches.observe(reports, coverage, poller);
    }

    /// Applies a state that a capability has computed for its handle. Ignored if the handle is no longer watched.
    pub fn set_readiness(&mut self, token: SourceToken, state: Readiness) {
        self.watches.set_readiness(token, state);
    }

    /// The guest has ended a handle. Watches on it stay until UNWATCH and report nothing, even if another handle gets
    /// the same number.
    pub fn end_handle(&mut self, handle: HandleNumber, poller: &mut impl Poller) {
        self.watches.end_handle(handle, poller);
    }

    /// Whether a watch is installed on this number: the handle table must not reuse the number before UNWATCH.
    pub fn watches_handle(&self, handle: HandleNumber) -> bool {
        self.watches.watches_handle(handle)
    }

    /// Ends the waiting POLL, or the next one, with the events that are pending at that time, even if there are none.
    pub fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// The guest has closed the loop: deregisters every handle and drops every watch, timer, request and reply.
    pub fn close(&mut self, poller: &mut impl Poller) {
        self.watches.clear(poller);
        self.timers.clear();
        self.reader.clear();
        self.output = FrameQueue::new(self.limits.output_bytes_max);
        self.open_poll = None;
        self.interrupted = false;
    }

    /// Returns when the shell must call [`SysLoop::resume`] at the latest: when a timer is due or the waiting POLL
    /// times out. A time that is not in the future means: look what is ready, but do not wait. `None`: no POLL is
    /// waiting, or it waits for readiness alone.
    pub fn next_deadline(&self) -> Option<MonoNs> {
        let poll = self.open_poll.as_ref()?;
        if self.interrupted || !self.watches.ready.is_empty() {
            return Some(self.now);
        }
        self.timers.first_due().into_iter().chain(poll.deadline).min()
    }

    pub fn counters(&self) -> Counters {
        Counters { watches_examined: self.watches.examined, ..self.counters }
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            watches: self.watches.watches.len(),
            ready: self.watches.ready.len(),
            timers: self.timers.len(),
            output_bytes: self.output.len_bytes(),
            input_bytes: self.reader.held().len(),
        }
    }

    /// Executes a request. The caller has made sure that its answer can be queued. A POLL is only opened;
    /// `try_answer_poll` answers it.
    pub(crate) fn execute(&mut self, rid: u32, request: Request, poller: &mut impl Poller) {
        let done = match request {
            Request::Watch { handle, interest, watch_id } => match HandleNumber::new(handle) {
                Some(handle) => self.watches.add(watch_id, handle, interest, poller),
                None => Err(RequestError::NotWatchable),
            },
            Request::Unwatch { watch_id } => self.watches.remove(watch_id, poller),
            Request::TimerArm { timer_id, due, interval_ns } => {
                let max = self.limits.timers_max;
                let has_room = self.timers.len() < max || self.timers.contains(timer_id);
                let due = match due {
                    FirstDue::At(at) => at,
                    FirstDue::After(ns) => self.now.after_ns(ns),
                };
                has_room
                    .then(|| self.timers.arm(timer_id, due, interval_ns))
                    .ok_or(RequestError::TooManyTimers { max })
            }
            Request::TimerCancel { timer_id } => match self.timers.cancel(timer_id) {
                true => Ok(()),
                false => Err(RequestError::UnknownTimer),
            },
            Request::Poll { max_events, timeout } => {
                self.counters.polls += 1;
                self.open_poll = Some(OpenPoll::new(rid, max_events, timeout, self.now));
                return;
            }
        };
        match done {
            Ok(()) => self.reply(Header::ok(request.op(), rid), &[]),
            Err(error) => self.reply_error(request.op(), rid, error),
        }
    }

    /// Queues the reply of the open POLL, if it has events or its wait is over. Returns whether no POLL is open any
    /// more.
    pub(crate) fn try_answer_poll(&mut self) -> bool {
        let Some(poll) = self.open_poll else { return true };
        let has_events = !self.watches.ready.is_empty() || self.timers.is_due(self.now);
        let is_over = self.interrupted || poll.deadline.is_some_and(|deadline| deadline <= self.now);
        if !has_events && !is_over {
            return false;
        }
        let slots = poll.slots(self.output.room().min(self.limits.frame_bytes_max));
        let reply = self.sharing.take_events(slots, self.now, &mut self.watches, &mut self.timers);
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        reply.encode(&mut payload);
        self.reply(Header::ok(OP_POLL, poll.rid), &payload);
        self.payload = payload;
        self.open_poll = None;
        self.interrupted = false;
        true
    }

    pub(crate) fn reply_error(&mut self, op: u16, rid: u32, error: RequestError) {
        let mut payload = Vec::with_capacity(error.payload().encoded_bytes());
        error.payload().encode(&mut payload);
        self.reply(Header::error(op, rid), &payload);
    }

    /// The queue has room for the frame: that was checked before the request was executed.
    fn reply(&mut self, header: Header, payload: &[u8]) {
        let queued = self.output.push(FrameClass::Reply, header, payload);
        debug_assert!(queued.is_ok(), "the room for an answer was checked before: {queued:?}");
    }
}
