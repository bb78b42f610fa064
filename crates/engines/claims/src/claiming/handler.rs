//! A handler of this worker: the events it holds, and whether it should claim more.

use std::collections::{BTreeSet, VecDeque};

use millrace_model::{
    Broken, Claimed, HandlerId, HandlerOrder, Mono, Now, RunMark, Suspicion, Timestamp, TopicKey, never,
};

use crate::interface::settings::Limits;
use crate::interface::spec::HandlerSpec;

/// How many times are remembered at which events of one handler become ready again. Later ones are found by polling.
const READY_TIMES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Handler {
    spec: HandlerSpec,
    limits: Limits,
    /// The handler is paused by its row in the store.
    paused_outside: bool,
    topic: TopicKey,
    /// Claimed events that have not started, in the order to run them.
    queue: VecDeque<Claimed>,
    /// Claimed events that have not started and must run alone (`running/suspects.rs`).
    suspects: VecDeque<Claimed>,
    running: usize,
    /// Runs whose last commit has ended their event: they hold a slot, but no event.
    acked: usize,
    /// There may be events to claim.
    wants_claim: bool,
    /// The last claim got as many events as it asked for.
    last_claim_full: bool,
    /// When to poll the store again if there was no news.
    poll_at: Mono,
    ready_times: BTreeSet<Timestamp>,
    /// This wake-up came from a timer or from polling: other sessions may hold claims that this worker does not know
    /// of, so read when the earliest one is due.
    claims_unknown: bool,
    /// How many events the handler holds at most. Halved when queued events have to be given back, doubled when they do
    /// not, so that a slow handler does not hoard events that other sessions could run.
    prefetch: usize,
    prefetch_max: usize,
    /// The handler had to give events back: it claims again only when an event could start at once.
    needs_free_slot: bool,
}

/// The result of a claim for one handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimResult {
    pub(crate) asked: usize,
    pub(crate) got: usize,
    /// There is more that this claim could not take.
    pub(crate) more: bool,
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
            acked: 0,
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

    pub(crate) fn spec(&self) -> &HandlerSpec {
        &self.spec
    }

    pub(crate) fn id(&self) -> &HandlerId {
        &self.spec.id
    }

    pub(crate) fn topic(&self) -> &TopicKey {
        &self.topic
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        self.limits.lease_ms
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len() + self.suspects.len()
    }

    pub(crate) fn in_progress(&self) -> usize {
        self.queued() + self.running.saturating_sub(self.acked)
    }

    /// The last commit of a run, with its acknowledgement, is durable.
    pub(crate) fn on_acked(&mut self) {
        self.acked += 1;
    }

    /// Whether the handler runs events in order of keys: an event that has ended then makes the next one of its key
    /// ready.
    pub(crate) fn is_ordered(&self) -> bool {
        self.limits.order == HandlerOrder::Key
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.limits.paused || self.paused_outside
    }

    /// Applies the handler's row in the store. Returns whether the handler is now paused, if that has changed.
    pub(crate) fn set_paused_outside(&mut self, paused: bool) -> Option<bool> {
        let before = self.is_paused();
        self.paused_outside = paused;
        (self.is_paused() != before).then_some(!before)
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
    pub(crate) fn on_run_begins(&mut self, now: Now) {
        self.running += 1;
        if let Some(rate) = &mut self.limits.rate {
            rate.begin(now.mono);
        }
    }

    /// `acked` if the event had ended with the run's last commit.
    pub(crate) fn on_run_ended(&mut self, acked: bool, broken: &Broken) {
        if acked {
            self.acked = self.acked.saturating_sub(1);
        }
        match self.running.checked_sub(1) {
            Some(running) => self.running = running,
            None => never!(broken, "a run of {} has ended, but none was counted", self.spec.id),
        }
    }

    /// When the handler's rate allows it to start a queued event, or to claim more.
    pub(crate) fn rate_wake(&self, now: Now) -> Option<Mono> {
        let wanted = (self.wants_claim || self.queued() > 0) && !self.is_paused();
        let ready_at = self.limits.rate.as_ref().filter(|_| wanted)?.ready_at();
        (ready_at > now.mono).then_some(ready_at)
    }

    pub(crate) fn enqueue(&mut self, claimed: Claimed) {
        match claimed.ticket.row.suspicion {
            Suspicion::Likely => self.suspects.push_back(claimed),
            Suspicion::Possible | Suspicion::None => self.queue.push_back(claimed),
        }
    }

    /// Whether an event is queued that need not run alone.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn next_queued(&mut self) -> Option<Claimed> {
        self.queue.pop_front()
    }

    pub(crate) fn first_suspect(&self) -> Option<&Claimed> {
        self.suspects.front()
    }

    pub(crate) fn next_suspect(&mut self) -> Option<Claimed> {
        self.suspects.pop_front()
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
    pub(crate) fn remove_queued(&mut self, wanted: impl Fn(&Claimed) -> bool) -> Vec<Claimed> {
        let mut removed = Vec::new();
        for queue in [&mut self.queue, &mut self.suspects] {
            let (mine, left): (Vec<_>, Vec<_>) = std::mem::take(queue).into_iter().partition(&wanted);
            removed.extend(mine);
            *queue = left.into();
        }
        removed
    }

    pub(crate) fn wants_claim(&self) -> bool {
        self.wants_claim
    }

    /// There may be events to claim.
    pub(crate) fn want_claim(&mut self) {
        self.wants_claim = true;
    }

    /// An event has ended: in order of keys, the next one of its key is ready.
    pub(crate) fn want_next_of_key(&mut self) {
        self.wants_claim |= self.is_ordered();
    }

    pub(crate) fn is_last_claim_full(&self) -> bool {
        self.last_claim_full
    }

    /// How many events to claim now. Waits until half of the held events are done, so that claims come in batches.
    pub(crate) fn claim_size(&self, now: Now, slot_free: bool) -> usize {
        let in_progress = self.in_progress();
        let could_begin = slot_free && self.may_begin(now);
        let may = self.wants_claim && !self.is_paused() && (could_begin || !self.needs_free_slot);
        if may && in_progress <= self.prefetch / 2 { self.prefetch - in_progress } else { 0 }
    }

    /// How many events the last commit of a run claims beside the acknowledgement of its own.
    pub(crate) fn claim_size_with_last_commit(&self) -> usize {
        let wants = self.wants_claim || self.is_ordered();
        let held = self.in_progress().saturating_sub(1);
        let may = wants && !self.is_paused() && !self.needs_free_slot;
        if may && held <= self.prefetch / 2 { self.prefetch - held } else { 0 }
    }

    /// A claim is under way: it does not see events that become ready from here on.
    pub(crate) fn on_claim_sent(&mut self) {
        self.wants_claim = false;
    }

    /// Takes note of the result of a claim. Returns whether the first open claim must be read, because claims of other
    /// sessions are not known.
    pub(crate) fn on_claimed(&mut self, result: ClaimResult, poll_at: Mono) -> bool {
        self.last_claim_full = result.got >= result.asked;
        self.wants_claim |= self.last_claim_full || result.more;
        self.poll_at = poll_at;
        self.needs_free_slot = false;
        if self.queued() == 0 {
            self.prefetch = (self.prefetch * 2).min(self.prefetch_max);
        }
        std::mem::take(&mut self.claims_unknown) && !self.wants_claim
    }

    /// The claim was not committed, because its batch was too large together with actions: claim again.
    pub(crate) fn on_claim_deferred(&mut self) {
        self.wants_claim = true;
    }

    /// The claim itself was too large: claim less, and not before the next poll.
    pub(crate) fn on_claim_too_large(&mut self, poll_at: Mono) {
        self.wants_claim = false;
        self.halve_prefetch();
        self.poll_at = poll_at;
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

    /// Whether the handler holds no more than its limits allow.
    pub(crate) fn is_within_limits(&self) -> bool {
        (1..=self.prefetch_max).contains(&self.prefetch) && self.in_progress() <= self.prefetch_max
    }
}
