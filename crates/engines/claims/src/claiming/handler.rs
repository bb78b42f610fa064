//! A handler of this worker: the events it holds, and whether it should claim more.

use std::collections::{BTreeSet, VecDeque};

use millrace_model::{Claimed, HandlerOrder, Mono, Now, RunMark, Suspicion, Timestamp, TopicKey};

use crate::interface::settings::Limits;
use crate::interface::spec::HandlerSpec;

/// How many times are remembered at which events of one handler become ready again. Later ones are found by polling.
const READY_TIMES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) spec: HandlerSpec,
    pub(crate) limits: Limits,
    /// The handler is paused by its row in the store.
    pub(crate) paused_outside: bool,
    pub(crate) topic: TopicKey,
    /// Claimed events that have not started, in the order to run them.
    pub(crate) queue: VecDeque<Claimed>,
    /// Claimed events that have not started and must run alone (`suspects.rs`).
    pub(crate) suspects: VecDeque<Claimed>,
    pub(crate) running: usize,
    /// There may be events to claim.
    pub(crate) wants_claim: bool,
    /// The last claim got as many events as it asked for.
    pub(crate) last_claim_full: bool,
    /// When to poll the store again if there was no news.
    pub(crate) poll_at: Mono,
    ready_times: BTreeSet<Timestamp>,
    /// This wake-up came from a timer or from polling: other sessions may hold claims that this worker does not know
    /// of, so read when the earliest one is due.
    pub(crate) claims_unknown: bool,
    /// How many events the handler holds at most. Halved when queued events have to be given back, doubled when they do
    /// not, so that a slow handler does not hoard events that other sessions could run.
    prefetch: usize,
    prefetch_max: usize,
    /// The handler had to give events back: it claims again only when an event could start at once.
    needs_free_slot: bool,
}

impl Handler {
    pub(crate) fn new(
        spec: HandlerSpec,
        topic: TopicKey,
        limits: Limits,
        event_claim_limit: usize,
    ) -> Handler {
        let prefetch_max = limits.claims_max(event_claim_limit);
        Handler {
            spec,
            limits,
            paused_outside: false,
            topic,
            queue: VecDeque::new(),
            suspects: VecDeque::new(),
            running: 0,
            wants_claim: true,
            last_claim_full: false,
            poll_at: Mono(0),
            ready_times: BTreeSet::new(),
            claims_unknown: true,
            prefetch: prefetch_max,
            prefetch_max,
            needs_free_slot: false,
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len() + self.suspects.len()
    }

    /// Whether the handler runs events in order of keys: an event that has ended then makes the next one of its key
    /// ready.
    pub(crate) fn is_ordered(&self) -> bool {
        self.limits.order == HandlerOrder::Key
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.limits.paused || self.paused_outside
    }

    /// Whether the handler's own limits allow another run to begin.
    pub(crate) fn may_begin(&self, now: Now) -> bool {
        let in_time = self.limits.rate.as_ref().is_none_or(|rate| rate.ready_at() <= now.mono);
        in_time && self.running < self.limits.concurrency && !self.is_paused()
    }

    /// How many events a claim may mark as to be started at once, by the handler's own limits: those start before any
    /// others.
    pub(crate) fn starts_max(&self, now: Now) -> usize {
        match &self.limits.rate {
            _ if !self.may_begin(now) || self.queued() > 0 => 0,
            Some(_) => 1,
            None => self.limits.concurrency - self.running,
        }
    }

    /// Counts a run that begins.
    pub(crate) fn begin(&mut self, now: Now) {
        self.running += 1;
        if let Some(rate) = &mut self.limits.rate {
            rate.begin(now.mono);
        }
    }

    /// When the handler's rate allows it to start a queued event, or to claim more.
    pub(crate) fn rate_wake(&self, now: Now) -> Option<Mono> {
        let wanted = (self.wants_claim || self.queued() > 0) && !self.is_paused();
        let ready_at = self.limits.rate.as_ref().filter(|_| wanted)?.ready_at();
        (ready_at > now.mono).then_some(ready_at)
    }

    pub(crate) fn in_progress(&self) -> usize {
        self.queued() + self.running
    }

    pub(crate) fn enqueue(&mut self, claimed: Claimed) {
        match claimed.ticket.row.suspicion {
            Suspicion::Likely => self.suspects.push_back(claimed),
            Suspicion::Possible | Suspicion::None => self.queue.push_back(claimed),
        }
    }

    /// Whether the first event in the queue was marked by its claim as to be started at once.
    pub(crate) fn has_marked(&self) -> bool {
        self.queue.front().is_some_and(|claimed| claimed.ticket.row.run > RunMark::Unknown)
    }

    /// The first event of each queue: those are the ones whose leases end first.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = &Claimed> {
        self.queue.front().into_iter().chain(self.suspects.front())
    }

    /// Removes the events that match `wanted` from the queues.
    pub(crate) fn unqueue(&mut self, wanted: impl Fn(&Claimed) -> bool) -> Vec<Claimed> {
        let mut removed = Vec::new();
        for queue in [&mut self.queue, &mut self.suspects] {
            let (mine, left): (Vec<_>, Vec<_>) = std::mem::take(queue).into_iter().partition(&wanted);
            removed.extend(mine);
            *queue = left.into();
        }
        removed
    }

    /// How many events to claim now. Waits until half of the held events are done, so that claims come in batches.
    pub(crate) fn claim_size(&self, now: Now, slot_free: bool) -> usize {
        let in_progress = self.in_progress();
        let could_begin = slot_free && self.may_begin(now);
        let may = self.wants_claim && !self.is_paused() && (could_begin || !self.needs_free_slot);
        if may && in_progress <= self.prefetch / 2 { self.prefetch - in_progress } else { 0 }
    }

    /// Takes note of the result of a claim.
    pub(crate) fn on_claimed(&mut self, asked: usize, got: usize, more: bool, poll_at: Mono) {
        self.last_claim_full = got >= asked;
        self.wants_claim = self.last_claim_full || more;
        self.poll_at = poll_at;
        self.needs_free_slot = false;
        if self.queued() == 0 {
            self.prefetch = (self.prefetch * 2).min(self.prefetch_max);
        }
    }

    pub(crate) fn halve_prefetch(&mut self) {
        self.prefetch = (self.prefetch / 2).max(1);
        self.needs_free_slot = true;
    }

    /// An event of this handler will be ready at `due`.
    pub(crate) fn ready_again_at(&mut self, due: Timestamp) {
        self.ready_times.insert(due);
        if self.ready_times.len() > READY_TIMES_MAX {
            self.ready_times.pop_last();
        }
    }

    pub(crate) fn wake(&mut self, now: Now, polls: bool) {
        while self.ready_times.first().is_some_and(|due| *due <= now.wall) {
            self.ready_times.pop_first();
            self.wants_claim = true;
            self.claims_unknown = true;
        }
        if polls && self.poll_at <= now.mono && !self.wants_claim {
            self.wants_claim = true;
            self.claims_unknown = true;
        }
    }

    pub(crate) fn next_wake(&self, now: Now, polls: bool) -> Option<Mono> {
        let due = self.ready_times.first().map(|due| now.mono_at(*due));
        let poll = (polls && !self.wants_claim).then_some(self.poll_at);
        [due, poll].into_iter().flatten().min()
    }
}
