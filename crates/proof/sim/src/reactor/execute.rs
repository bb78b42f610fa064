//! Executes the bytes of a write a second time, on the lists of the record: computes the answers that the guest must
//! get and the value that the write must return.

use millrace_reactor::{
    ANSWER_BYTES_MAX, FirstDue, PollTimeout, Readiness, Request, RequestError, ZabiError,
};

use super::poller::Opening;
use super::record::{Expected, Outcome, Record, Timer, WaitingPoll, Watch};
use super::requests::{Item, Meaning, Stream};

impl Record {
    /// A write begins. Returns its outcome, if it goes no further.
    pub(super) fn write_begins(&mut self) -> Option<Outcome> {
        self.after_wrong = false;
        let cut = self.cut?;
        if let Some(expected) = cut {
            if self.room() < ANSWER_BYTES_MAX {
                return Some(Outcome::NoRoom(Err(ZabiError::Again)));
            }
            self.expect(expected);
        }
        self.cut = None;
        self.after_wrong = true;
        None
    }

    /// Executes the requests in the bytes of a write, up to a POLL; called again once the POLL is answered.
    pub(super) fn execute_write(&mut self, stream: &mut Stream, bytes: usize, is_failing: bool) -> Outcome {
        let (begin, end) = (stream.consumed, stream.consumed + bytes as u64);
        let mut consumed = 0;
        for item in &mut stream.items {
            if item.start >= end {
                break;
            }
            let upto = (item.end.min(end) - begin) as usize;
            if item.decided_at > end {
                consumed = upto;
                break;
            }
            if let Meaning::NoFrame(code) = item.meaning {
                self.after_wrong = true;
                return Outcome::Returned(Err(code));
            }
            if item.is_answered {
                consumed = upto;
                self.note_cut(item, end);
                continue;
            }
            if item.meaning == Meaning::Truncated {
                let expected = Expected { op: item.op, rid: item.rid, error: Some(RequestError::Truncated) };
                self.cut = Some(Some(expected));
                consumed = upto;
                continue;
            }
            if self.room() < ANSWER_BYTES_MAX {
                return Outcome::NoRoom(if consumed > 0 { Ok(consumed) } else { Err(ZabiError::Again) });
            }
            item.is_answered = true;
            let error = match item.meaning {
                Meaning::Request(Request::Poll { max_events, timeout }) => {
                    let deadline = match timeout {
                        PollTimeout::Ms(ms) => Some(self.now + u64::from(ms) * 1_000_000),
                        PollTimeout::Forever => None,
                    };
                    let (op, rid, room) = (item.op, item.rid, self.room());
                    let max_events = max_events.get() as usize;
                    self.poll = Some(WaitingPoll { op, rid, max_events, deadline, room });
                    return Outcome::Poll;
                }
                Meaning::Request(request) => self.execute(request, is_failing).err(),
                Meaning::Wrong(error) => {
                    self.after_wrong = true;
                    Some(error)
                }
                Meaning::Truncated | Meaning::NoFrame(_) => None,
            };
            self.expect(Expected { op: item.op, rid: item.rid, error });
            consumed = upto;
            self.note_cut(item, end);
        }
        Outcome::Returned(Ok(consumed))
    }

    /// Notes if the payload of a refused frame is cut.
    fn note_cut(&mut self, item: &Item, end: u64) {
        if item.is_cut && item.end <= end {
            self.cut = Some(None);
        }
    }

    fn expect(&mut self, expected: Expected) {
        self.unread_bytes += expected.frame_bytes();
        self.expected.push_back(expected);
    }

    fn room(&self) -> usize {
        self.limits.output_bytes_max.saturating_sub(self.unread_bytes)
    }

    fn execute(&mut self, request: Request, is_failing: bool) -> Result<(), RequestError> {
        match request {
            Request::Watch { handle, interest, watch_id } => {
                self.watch(watch_id.0.get(), handle, interest, is_failing)
            }
            Request::Unwatch { watch_id } => {
                let watch = self.watches.remove(&watch_id.0.get()).ok_or(RequestError::UnknownWatch)?;
                self.source_changed(watch.opening);
                Ok(())
            }
            Request::TimerArm { timer_id, due, interval_ns } => {
                let (id, max) = (timer_id.0.get(), self.limits.timers_max);
                if self.timers.len() >= max && !self.timers.contains_key(&id) {
                    return Err(RequestError::TooManyTimers { max });
                }
                let due = match due {
                    FirstDue::At(at) => at.0,
                    FirstDue::After(ns) => self.now.saturating_add(ns),
                };
                self.arm(id, due, interval_ns.map_or(0, Into::into), false);
                Ok(())
            }
            Request::TimerCancel { timer_id } => match self.timers.remove(&timer_id.0.get()) {
                Some(_) => Ok(()),
                None => Err(RequestError::UnknownTimer),
            },
            Request::Poll { .. } => Ok(()),
        }
    }

    pub(super) fn arm(&mut self, id: u64, due: u64, interval_ns: u64, has_fired: bool) {
        self.armed += 1;
        self.timers.insert(id, Timer { due, interval_ns, order: self.armed, has_fired });
    }

    fn watch(
        &mut self,
        id: u64,
        number: u32,
        interest: Readiness,
        is_failing: bool,
    ) -> Result<(), RequestError> {
        if self.watches.contains_key(&id) {
            return Err(RequestError::WatchIdInUse);
        }
        let max = self.limits.watches_max;
        if self.watches.len() >= max {
            return Err(RequestError::TooManyWatches { max });
        }
        let handle = self.handles.get(&number).ok_or(RequestError::NotWatchable)?;
        let opening = handle.opening;
        let on_it = self.watches.values().filter(|watch| watch.opening == opening);
        let asked = on_it.fold(Readiness::NONE, |all, watch| all | watch.interest);
        let is_registered = self.sources.contains_key(&opening);
        if is_failing && !(is_registered && asked.contains(interest)) {
            return Err(RequestError::NotWatchable);
        }
        let source = self.sources.entry(opening).or_default();
        source.useless = 0;
        if handle.is_computed {
            source.told = handle.state;
        }
        let watch = Watch {
            handle: number,
            opening,
            interest,
            is_pending: false,
            passed_over: 0,
            ready_max: 0,
            slots_min: usize::MAX,
            unheard: 0,
        };
        self.watches.insert(id, watch);
        Ok(())
    }

    /// A watch on a handle was removed.
    fn source_changed(&mut self, opening: Opening) {
        if self.watches.values().any(|watch| watch.opening == opening) {
            self.sources.entry(opening).and_modify(|source| source.useless = 0);
        } else {
            self.sources.remove(&opening);
        }
    }
}
