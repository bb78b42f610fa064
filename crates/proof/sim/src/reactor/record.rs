//! The world's own knowledge of one loop, gained without looking into the engine: which handles are open, what the
//! engine was told, what it was asked. `execute.rs` executes every request a second time, on these plain lists;
//! `replies.rs` checks what the guest reads.

use std::collections::{BTreeMap, VecDeque};

use millrace_reactor::{Coverage, Gauges, LoopLimits, Readiness, RequestError, ZabiError};

use super::poller::Opening;
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
    /// For polled handles: the poller has reported it, and the guest has not been told since.
    pub(super) is_pending: bool,
    /// POLLs that passed the watch over since it became pending, the most watches that were pending in them, and the
    /// fewest slots that they had.
    pub(super) passed_over: usize,
    pub(super) ready_max: usize,
    pub(super) slots_min: usize,
    /// Rounds in a row that covered everything and did not name the handle, although it was ready.
    pub(super) unheard: u64,
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
    /// Timers with equal due times are delivered in this order.
    pub(super) order: u64,
    pub(super) has_fired: bool,
}

/// An open handle that is watched.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) told: Readiness,
    /// Reports in a row that were of no use to any watch.
    pub(super) useless: u64,
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
    /// How long the reply may be, in bytes.
    pub(super) room: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) op: u16,
    pub(super) rid: u32,
    pub(super) error: Option<RequestError>,
}

impl Expected {
    pub(super) fn frame_bytes(&self) -> usize {
        24 + self.error.map_or(0, |error| error.payload().encoded_bytes())
    }
}

/// The outcome of a write, as far as the record can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Returned(Result<usize, ZabiError>),
    /// The write ends here because there is no room for an answer.
    NoRoom(Result<usize, ZabiError>),
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
    pub(super) sources: BTreeMap<Opening, Source>,
    pub(super) armed: u64,
    pub(super) is_interrupted: bool,
    pub(super) poll: Option<WaitingPoll>,
    pub(super) expected: VecDeque<Expected>,
    pub(super) unread_bytes: usize,
    /// The beginning of a frame that the guest has read in part.
    pub(super) part: Vec<u8>,
    /// A frame was cut: the next write begins with a whole request. The inner value is the answer to that frame.
    pub(super) cut: Option<Option<Expected>>,
    /// The present write follows a frame that was wrong.
    pub(super) after_wrong: bool,
    /// How often in a row a single slot went to the other side: for timers, and for watches.
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

    /// The engine is told of a round. `is_fresh`: nothing has changed since the round was made.
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

    /// A POLL goes on waiting: it must have nothing to reply, and the engine must ask to be called when it will have.
    pub(super) fn goes_on_waiting(&self, deadline: Option<u64>) -> Result<(), Violation> {
        let Some(poll) = &self.poll else { return Ok(()) };
        if self.can_answer(poll) {
            return Err(violation("wakes_in_time", format!("POLL {} waits, but has a reply", poll.rid)));
        }
        let due = self.timers.values().map(|timer| timer.due).chain(poll.deadline).min();
        if due != deadline {
            let detail = format!("POLL {} is to end at {due:?}, the engine says {deadline:?}", poll.rid);
            let off_grid = |timer: &Timer| timer.has_fired && Some(timer.due) == due && deadline.is_some();
            let is_off_grid = self.timers.values().any(off_grid);
            return Err(violation(if is_off_grid { "timer_on_grid" } else { "wakes_in_time" }, detail));
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
            let invariant = match () {
                () if counts.0 < known.0 || counts.1 < known.1 => "nothing_lost",
                () if counts.1 > known.1 => "timer_once",
                () if counts.0 > known.0 => "only_what_is_watched",
                () => "answered_once",
            };
            return Err(violation(invariant, detail));
        }
        Ok(())
    }

    /// Compares the result of a write with the one it had to give.
    pub(super) fn check_returned(
        &self,
        must: Outcome,
        is: Option<Result<usize, ZabiError>>,
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
