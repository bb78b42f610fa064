//! Events that a child was given and may not have finished with.
//!
//! A child need not answer an event, so it is not known when it has finished with one, unless it sends a `reply` to the
//! event. Without a reply an event counts as finished [`ChildLimits::event_ms`] after the child has read it. The pipe
//! shows how much the child has read: an event that is still in the pipe has certainly not been begun. An event that
//! has been read may wait in a buffer of the child, which is why the pipe is small ([`ChildLimits::ahead_bytes`]).
//!
//! The row of a durable timer stays until its event is finished, so a kill of the server loses none. When a child ends,
//! its next run gets every unfinished event of a durable timer, and every other event that was
//! not read. Other events that were read shortly before the end may be lost: each of them is reported by
//! `Sys.EventDropped`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millrace_kernel::{Delivery, Port};
use millrace_model::{OsFault, OsId, OsKind, OsMessage, OsType};
use tokio::time::Instant;

use crate::in_progress::{InProgress, fault_of};
use crate::settings::ChildLimits;

/// Ids of plain events (those of no durable timer) that are kept, so that a reply to such an event is not taken for a
/// fault.
const REPLIABLE_MAX: usize = 1024;
/// Number of runs that ended while an event of a durable timer was the only message in progress. At this number the
/// event is given up.
const RUNS_MAX: u8 = 2;

#[derive(Debug)]
struct Given {
    delivery: Delivery,
    /// Position of the end of this event in the bytes written to the child.
    end: u64,
    /// When it was noticed that the child had read it.
    read_at: Option<Instant>,
    written_at: Instant,
    /// The engine has not been told that the delivery is done.
    open: bool,
}

/// Unfinished events of durable timers of one type, the oldest first. Bounded by the timers that may be set.
#[derive(Debug, Default)]
struct TimerEvents {
    events: VecDeque<Given>,
    /// The child has replied to an event of this type, so it handles them one after another: the time of an event
    /// begins when the child has replied to the event before.
    replies: bool,
    /// When the last event was finished.
    finished_at: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct GivenEvents {
    timers: BTreeMap<OsType, TimerEvents>,
    /// The newest plain events: at most twice `ahead_bytes` of them. Older ones have been read and are no longer in the
    /// child's buffer.
    plain: VecDeque<Given>,
    repliable: VecDeque<OsId>,
    ahead_bytes: u64,
    event_time: Duration,
    looked_at: Instant,
}

impl GivenEvents {
    pub(crate) fn new(limits: &ChildLimits) -> GivenEvents {
        GivenEvents {
            timers: BTreeMap::new(),
            plain: VecDeque::new(),
            repliable: VecDeque::new(),
            ahead_bytes: limits.ahead_bytes as u64,
            event_time: Duration::from_millis(limits.event_ms),
            looked_at: Instant::now(),
        }
    }

    /// An event was written to the child's pipe. The last event before a pause stays open in the engine, so that a
    /// capability that is to be removed stays until the child has finished with it.
    pub(crate) fn wrote(&mut self, port: &Port, in_progress: InProgress) {
        let InProgress { delivery, end, .. } = in_progress;
        let now = Instant::now();
        let given = Given { end, read_at: None, written_at: now, open: true, delivery };
        if given.delivery.owed {
            port.handed(given.delivery.id);
            let ty = given.delivery.message.ty.clone();
            self.timers.entry(ty).or_default().events.push_back(given);
            return;
        }
        if self.repliable.len() == REPLIABLE_MAX {
            self.repliable.pop_front();
        }
        self.repliable.push_back(given.delivery.message.metadata.id.clone());
        self.close_plain(port);
        while self.plain.front().is_some_and(|oldest| oldest.end + 2 * self.ahead_bytes <= end) {
            self.plain.pop_front();
        }
        let id = given.delivery.id;
        let is_last = !port.has_next();
        self.plain.push_back(Given { open: is_last, ..given });
        match is_last {
            true => port.handed(id),
            false => port.done(id, Ok(())),
        }
    }

    /// Marks the last plain event as done: another message follows, or its time has passed.
    fn close_plain(&mut self, port: &Port) {
        if let Some(last) = self.plain.back_mut().filter(|last| last.open) {
            last.open = false;
            port.done(last.delivery.id, Ok(()));
        }
    }

    /// The most plain events that the child may have read and not begun.
    pub(crate) fn ahead(&self) -> u32 {
        u32::try_from(self.plain.len()).unwrap_or(u32::MAX)
    }

    /// The child has answered the message that ends at byte `end`. A child handles one message after another, so it has
    /// finished with the plain events before.
    pub(crate) fn answered(&mut self, port: &Port, end: u64) {
        while self.plain.front().is_some_and(|oldest| oldest.end <= end) {
            let Some(oldest) = self.plain.pop_front() else { break };
            if oldest.open {
                port.done(oldest.delivery.id, Ok(()));
            }
        }
    }

    /// Whether an outcome is about an event that the child was given; if so, finishes that event.
    pub(crate) fn is_answered_by(&mut self, port: &Port, outcome: &OsMessage) -> bool {
        let Some(cause) = &outcome.metadata.causation else { return false };
        let is_it = |given: &Given| given.delivery.message.metadata.id == *cause;
        for of_type in self.timers.values_mut() {
            let Some(at) = of_type.events.iter().position(is_it) else { continue };
            let Some(given) = of_type.events.remove(at) else { continue };
            of_type.replied();
            let result = if outcome.kind == OsKind::Error { Err(fault_of(outcome)) } else { Ok(()) };
            port.done(given.delivery.id, result);
            self.answered(port, given.end);
            return true;
        }
        if outcome.kind != OsKind::Reply || !self.repliable.contains(cause) {
            return false;
        }
        if let Some(end) = self.plain.iter().find(|given| is_it(given)).map(|given| given.end) {
            self.answered(port, end);
        }
        true
    }

    /// The child has replied to an event of this type that it was given alone.
    pub(crate) fn replied(&mut self, ty: &OsType) {
        self.timers.entry(ty.clone()).or_default().replied();
    }

    /// When the next event counts as finished, or when the pipe is to be checked: a few times within the time of an
    /// event.
    pub(crate) fn until(&self) -> Option<Instant> {
        let fronts = self.timers.values().filter_map(|of_type| Some((of_type.events.front()?, of_type)));
        let timers = fronts.map(|(given, of_type)| of_type.start(given).map(|start| start + self.event_time));
        let plain = self.plain.back().filter(|last| last.open);
        let plain = plain.map(|last| last.read_at.map(|start| start + self.event_time));
        let look = self.looked_at + (self.event_time / 16).max(Duration::from_millis(10));
        timers.chain(plain).map(|due| due.unwrap_or(look)).min()
    }

    /// Called with the number of bytes that the child has read. Finishes the events whose time has passed.
    pub(crate) fn look(&mut self, port: &Port, read: u64) {
        let now = Instant::now();
        self.looked_at = now;
        let is_over = |start: Option<Instant>| start.is_some_and(|start| start + self.event_time <= now);
        for of_type in self.timers.values_mut() {
            for given in of_type.events.iter_mut().skip_while(|given| given.read_at.is_some()) {
                if given.end > read {
                    break;
                }
                given.read_at = Some(now);
            }
            while of_type.events.front().is_some_and(|given| is_over(of_type.start(given))) {
                let Some(given) = of_type.events.pop_front() else { break };
                of_type.finished_at = Some(now);
                port.done(given.delivery.id, Ok(()));
            }
        }
        for given in self.plain.iter_mut().filter(|given| given.read_at.is_none() && given.end <= read) {
            given.read_at = Some(now);
        }
        if self.plain.back().is_some_and(|last| is_over(last.read_at)) {
            self.close_plain(port);
        }
    }

    /// The child has ended by itself when it was told to: it has read and finished everything.
    pub(crate) fn finished(self, port: &Port) {
        for given in self.all().filter(|given| given.open) {
            port.done(given.delivery.id, Ok(()));
        }
    }

    /// The child was killed because it did not end. Events of durable timers are given back for its successor. Other
    /// events are not given to the successor: they were checked against the manifest of this child.
    pub(crate) fn give_back(self, port: &Port, read: u64, in_progress: Option<InProgress>) {
        let (ahead, time) = (self.ahead_bytes, self.event_time);
        let in_progress = in_progress.map(Given::in_progress);
        let mut lost = 0;
        for given in self.all().chain(in_progress) {
            match given.delivery.owed {
                true => port.gives_back(given.delivery.id),
                false => {
                    if given.end > read || given.is_in_doubt(read, ahead, time) {
                        lost += 1;
                        port.event_lost(&given.delivery, "it was killed before it had finished with it");
                    }
                    if given.open {
                        port.done(given.delivery.id, Ok(()));
                    }
                }
            }
        }
        if lost > 0 {
            // Logged here as well, because the loop may have stopped and then reports nothing.
            tracing::warn!(capability = %port.name(), "it was killed, and {lost} events may be lost");
        }
    }

    /// The child has ended without having been told to. `read` is how many bytes it had read, `in_progress` the event
    /// it was given last, if it had one. `busy` means that it was handling a request or an event of the bus, which it
    /// was given after all of these.
    ///
    /// An event of a durable timer that the child may have been handling (a suspect) is given alone in the next run.
    /// If that run ends as well, the event is given up; otherwise an event that crashes the child would come back for
    /// ever.
    ///
    /// Returns the number of suspects.
    pub(crate) fn for_next_run(
        self,
        port: &Port,
        read: u64,
        in_progress: Option<InProgress>,
        busy: bool,
    ) -> usize {
        let (ahead, time) = (self.ahead_bytes, self.event_time);
        let alone = in_progress
            .as_ref()
            .filter(|in_progress| in_progress.is_alone())
            .map(|in_progress| in_progress.delivery.id);
        let mut all: Vec<Given> = self.all().chain(in_progress.map(Given::in_progress)).collect();
        all.sort_by_key(|given| given.end);
        let is_suspect =
            |given: &Given| given.delivery.owed && !busy && given.end <= read && given.end + ahead > read;
        let suspects = all.iter().filter(|given| is_suspect(given)).count();
        let mut next = Vec::new();
        for given in all {
            let suspect = is_suspect(&given);
            let Given { delivery, .. } = &given;
            if !delivery.owed {
                if given.end > read {
                    next.push(given.delivery);
                    continue;
                }
                if given.is_in_doubt(read, ahead, time) {
                    port.event_lost(delivery, "it ended and may not have finished with it");
                }
                if given.open {
                    port.done(given.delivery.id, Ok(()));
                }
                continue;
            }
            let is_it = suspects == 1 && (delivery.suspect.is_none() || alone == Some(delivery.id));
            let runs = match suspect {
                true => Some(delivery.suspect.unwrap_or(0) + u8::from(is_it)),
                false => delivery.suspect,
            };
            if runs.is_some_and(|runs| runs >= RUNS_MAX) {
                let name = port.name();
                let fault = format!(
                    "Capability '{name}' ended twice before it had finished with an event of a timer"
                );
                port.done(delivery.id, Err(OsFault::new(500, fault)));
                continue;
            }
            next.push(Delivery { suspect: runs, ..given.delivery });
        }
        port.put_back(next);
        suspects
    }

    fn all(self) -> impl Iterator<Item = Given> {
        self.timers.into_values().flat_map(|of_type| of_type.events).chain(self.plain)
    }
}

impl TimerEvents {
    fn replied(&mut self) {
        self.replies = true;
        self.finished_at = Some(Instant::now());
    }

    /// When the child can have begun its oldest event.
    fn start(&self, oldest: &Given) -> Option<Instant> {
        let before = self.finished_at.filter(|_| self.replies);
        oldest.read_at.map(|read_at| before.map_or(read_at, |before| read_at.max(before)))
    }
}

impl Given {
    fn in_progress(in_progress: InProgress) -> Given {
        let InProgress { delivery, end, .. } = in_progress;
        Given { delivery, end, read_at: None, written_at: Instant::now(), open: true }
    }

    /// A plain event that the child has read, and may still have in its buffer.
    fn is_in_doubt(&self, read: u64, ahead: u64, time: Duration) -> bool {
        let read_at = self.read_at.unwrap_or_else(Instant::now);
        self.end <= read && self.end + ahead > read && read_at.max(self.written_at).elapsed() < time
    }
}
