//! What the world knows of one loop without looking into the engine: which handles are open, what the engine was told,
//! what it was asked. Requests are executed here a second time, on plain lists. `replies.rs` holds the checks of what
//! the guest reads.

use std::collections::{BTreeMap, VecDeque};

use millrace_reactor::{
    ANSWER_BYTES_MAX, Coverage, Due, ErrorCode, Gauges, LoopLimits, PollTimeout, Readiness, Request,
    RequestError,
};

use super::poller::Opening;
use super::requests::{Item, Meaning, Stream};
use crate::check::Violation;

pub(crate) const INVARIANTS: [&str; 17] = [
    "timer_never_early",
    "timer_once",
    "timer_on_grid",
    "timers_in_order",
    "sides_share",
    "more_exact",
    "nothing_lost",
    "watch_within_bound",
    "only_what_is_watched",
    "ready_is_heard",
    "no_busy_loop",
    "wakes_in_time",
    "queues_bounded",
    "answered_once",
    "refused_before_executed",
    "bad_frame_harms_none",
    "engine_consistent",
];

pub(super) fn violation(invariant: &'static str, detail: String) -> Violation {
    Violation { invariant, detail }
}

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) handle: u32,
    pub(super) opening: Opening,
    pub(super) interest: Readiness,
    /// For polled handles: reported by the poller, and not to the guest since.
    pub(super) is_pending: bool,
    /// POLLs that passed the watch over since it is pending, the most watches that were pending in them, and the
    /// fewest slots that they had.
    pub(super) passed_over: usize,
    pub(super) ready_max: usize,
    pub(super) slots_min: usize,
    /// Rounds in a row that covered everything and did not name the handle, although it was ready.
    unheard: u64,
}

impl Watch {
    /// The watch has nothing to report any more, or was reported: its next wait begins anew.
    pub(super) fn leaves_queue(&mut self) {
        (self.is_pending, self.passed_over, self.ready_max, self.slots_min) = (false, 0, 0, usize::MAX);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) due: u64,
    pub(super) interval_ns: u64,
    /// Equal due times are delivered in this order.
    pub(super) order: u64,
    pub(super) has_fired: bool,
}

/// An open handle that is watched.
#[derive(Debug, Default)]
struct Source {
    told: Readiness,
    /// Reports in a row that were of no use to any watch.
    useless: u64,
}

#[derive(Debug)]
pub(super) struct Handle {
    pub(super) opening: Opening,
    pub(super) is_computed: bool,
    pub(super) state: Readiness,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPoll {
    pub(super) op: u16,
    pub(super) rid: u32,
    pub(super) max_events: usize,
    pub(super) deadline: Option<u64>,
    /// Bytes that the reply may be long.
    pub(super) room: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) op: u16,
    pub(super) rid: u32,
    pub(super) error: Option<RequestError>,
}

impl Expected {
    fn frame_bytes(&self) -> usize {
        24 + self.error.map_or(0, |error| error.payload().encoded_bytes())
    }
}

/// What becomes of the bytes of a write, as far as the record can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Returned(Result<usize, ErrorCode>),
    /// The write ends here because an answer has no room.
    NoRoom(Result<usize, ErrorCode>),
    /// A POLL is open.
    Poll,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) limits: LoopLimits,
    pub(super) now: u64,
    pub(super) handles: BTreeMap<u32, Handle>,
    pub(super) watches: BTreeMap<u64, Watch>,
    pub(super) timers: BTreeMap<u64, Timer>,
    sources: BTreeMap<Opening, Source>,
    armed: u64,
    pub(super) is_interrupted: bool,
    pub(super) poll: Option<WaitingPoll>,
    pub(super) expected: VecDeque<Expected>,
    pub(super) unread_bytes: usize,
    /// The frame of which the guest has read a part.
    pub(super) part: Vec<u8>,
    /// A frame was cut: the next write begins with a whole request. Inside: what the frame is answered with.
    cut: Option<Option<Expected>>,
    /// The write under way follows a frame that was wrong.
    pub(super) after_wrong: bool,
    /// Single slots in a row that went to the other side: of timers, of watches.
    pub(super) single_slots_lost: (u32, u32),
}

impl Record {
    pub(super) fn new(limits: LoopLimits) -> Record {
        Record {
            limits,
            now: 0,
            handles: BTreeMap::new(),
            watches: BTreeMap::new(),
            timers: BTreeMap::new(),
            sources: BTreeMap::new(),
            armed: 0,
            is_interrupted: false,
            poll: None,
            expected: VecDeque::new(),
            unread_bytes: 0,
            part: Vec::new(),
            cut: None,
            after_wrong: false,
            single_slots_lost: (0, 0),
        }
    }

    pub(super) fn begins_whole(&self) -> bool {
        self.cut.is_some()
    }

    pub(super) fn state_changed(&mut self, number: u32, state: Readiness) {
        let Some(handle) = self.handles.get_mut(&number) else { return };
        handle.state = state;
        let Some(source) = self.sources.get_mut(&handle.opening) else { return };
        source.useless = 0;
        if handle.is_computed {
            source.told = state;
            let on_it = self.watches.values_mut().filter(|watch| watch.opening == handle.opening);
            on_it.filter(|watch| state.reported_to(watch.interest).is_empty()).for_each(Watch::leaves_queue);
        }
    }

    pub(super) fn handle_ended(&mut self, number: u32) {
        let Some(handle) = self.handles.remove(&number) else { return };
        self.sources.remove(&handle.opening);
        for watch in self.watches.values_mut().filter(|watch| watch.opening == handle.opening) {
            watch.leaves_queue();
        }
    }

    /// The engine takes a round. `is_fresh`: nothing has changed since the round was made.
    pub(super) fn told(
        &mut self,
        reports: &[(Opening, Readiness)],
        coverage: Coverage,
        is_fresh: bool,
        is_failing: bool,
    ) -> Result<(), Violation> {
        let mut named = BTreeMap::new();
        for (opening, state) in reports {
            let Some(source) = self.sources.get_mut(opening) else { continue };
            source.told = *state;
            named.insert(*opening, *state);
        }
        for (opening, source) in &mut self.sources {
            let is_polled =
                self.handles.values().any(|handle| handle.opening == *opening && !handle.is_computed);
            if is_polled && coverage == Coverage::All && !named.contains_key(opening) {
                source.told = Readiness::NONE;
            }
        }
        let mut useful = Vec::new();
        for (id, watch) in &mut self.watches {
            let Some(handle) = self.handles.get(&watch.handle).filter(|at| at.opening == watch.opening)
            else {
                continue;
            };
            if handle.is_computed {
                continue;
            }
            match named.get(&watch.opening) {
                Some(state) => watch.is_pending = !state.reported_to(watch.interest).is_empty(),
                None if coverage == Coverage::All => watch.is_pending = false,
                None => {}
            }
            if !watch.is_pending {
                watch.leaves_queue();
            } else {
                useful.push(watch.opening);
            }
            let is_ready = !handle.state.reported_to(watch.interest).is_empty();
            let is_unheard = is_ready && !watch.is_pending;
            match is_unheard && is_fresh && coverage == Coverage::All {
                true if !is_failing => watch.unheard += 1,
                true => {}
                false => watch.unheard = 0,
            }
            if watch.unheard > 1 {
                let detail = format!("watch {id}: its handle is {:?}, no round names it", handle.state);
                return Err(violation("ready_is_heard", detail));
            }
        }
        for opening in named.keys() {
            let Some(source) = self.sources.get_mut(opening) else { continue };
            match useful.contains(opening) {
                true => source.useless = 0,
                false if is_fresh && !is_failing => source.useless += 1,
                false => {}
            }
            if source.useless > 3 {
                let detail = format!("handle {opening} is {:?}, which nobody asks for", source.told);
                return Err(violation("no_busy_loop", format!("{detail}, and ends every wait")));
            }
        }
        Ok(())
    }

    /// A write begins. Returns what it returns, if it goes no further.
    pub(super) fn write_begins(&mut self) -> Option<Outcome> {
        self.after_wrong = false;
        let cut = self.cut?;
        if let Some(expected) = cut {
            if self.room() < ANSWER_BYTES_MAX {
                return Some(Outcome::NoRoom(Err(ErrorCode::Again)));
            }
            self.expect(expected);
        }
        self.cut = None;
        self.after_wrong = true;
        None
    }

    /// Executes what the bytes of a write mean, up to a POLL. `done` bytes of the write are consumed before.
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
                return Outcome::NoRoom(if consumed > 0 { Ok(consumed) } else { Err(ErrorCode::Again) });
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

    /// The payload of a frame that was refused may be cut.
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
                    Due::At(at) => at.0,
                    Due::After(ns) => self.now.saturating_add(ns),
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

    /// Returns what a POLL must say about a watch; nothing for a watch that is not pending.
    pub(super) fn report(&self, watch: &Watch) -> Readiness {
        let handle = self.handles.get(&watch.handle).filter(|handle| handle.opening == watch.opening);
        let told = self.sources.get(&watch.opening).map(|source| source.told).unwrap_or_default();
        match handle {
            Some(handle) if handle.is_computed || watch.is_pending => told.reported_to(watch.interest),
            _ => Readiness::NONE,
        }
    }

    /// Whether a POLL has something to reply.
    pub(super) fn can_answer(&self, poll: &WaitingPoll) -> bool {
        self.is_interrupted
            || poll.deadline.is_some_and(|deadline| deadline <= self.now)
            || self.timers.values().any(|timer| timer.due <= self.now)
            || self.watches.values().any(|watch| !self.report(watch).is_empty())
    }

    /// A POLL goes on waiting: it has nothing to reply, and the engine wants to be called when it has.
    pub(super) fn goes_on_waiting(&self, deadline: Option<u64>) -> Result<(), Violation> {
        let Some(poll) = &self.poll else { return Ok(()) };
        if self.can_answer(poll) {
            return Err(violation("wakes_in_time", format!("POLL {} waits, but has a reply", poll.rid)));
        }
        let due = self.timers.values().map(|timer| timer.due).chain(poll.deadline).min();
        if due != deadline {
            let detail = format!("POLL {} is to end at {due:?}, the engine says {deadline:?}", poll.rid);
            return Err(violation("wakes_in_time", detail));
        }
        Ok(())
    }

    pub(super) fn check_gauges(&self, gauges: Gauges) -> Result<(), Violation> {
        let LoopLimits { watches_max, timers_max, output_bytes_max, frame_bytes_max, .. } = self.limits;
        let is_bounded = gauges.watches <= watches_max
            && gauges.timers <= timers_max
            && gauges.ready <= gauges.watches
            && gauges.output_bytes <= output_bytes_max
            && gauges.input_bytes <= frame_bytes_max;
        if !is_bounded {
            return Err(violation("queues_bounded", format!("{gauges:?}, limits {:?}", self.limits)));
        }
        let counts = (gauges.watches, gauges.timers, gauges.output_bytes);
        let known = (self.watches.len(), self.timers.len(), self.unread_bytes);
        if counts != known {
            let detail = format!("watches, timers and bytes to read are {counts:?}, should be {known:?}");
            return Err(violation("engine_consistent", detail));
        }
        Ok(())
    }

    /// Compares what a write returned with what it had to.
    pub(super) fn check_returned(
        &self,
        must: Outcome,
        is: Option<Result<usize, ErrorCode>>,
    ) -> Result<(), Violation> {
        let (invariant, must) = match must {
            Outcome::Returned(result) if self.after_wrong => ("bad_frame_harms_none", result),
            Outcome::Returned(result) => ("answered_once", result),
            Outcome::NoRoom(result) => ("refused_before_executed", result),
            Outcome::Poll => return Ok(()),
        };
        match is {
            Some(is) if is == must => Ok(()),
            _ => Err(violation(invariant, format!("the write returns {is:?}, should return {must:?}"))),
        }
    }
}
