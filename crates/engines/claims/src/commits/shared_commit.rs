//! The shared commit: one batch at a time, with all actions (`action.rs`) that have gathered, and claims for the handlers
//! that want more events. The commits of running handlers (`run.rs`) do not wait for it.

use std::collections::VecDeque;

use millrace_model::{
    BATCH_BYTES_MAX, Batch, Claim, Done, Durability, Mono, Now, Op, Outcome, Refusal, Timestamp, TopicKey,
};

use crate::claiming::handler::Handler;
use crate::commits::action::{Action, FollowUp};
use crate::interface::effect::{Effect, Note};
use crate::worker::{Pending, Phase, Worker};

/// Actions in one shared commit; further ones wait for the next.
const ACTIONS_MAX: usize = 1024;
/// Bytes of actions in one shared commit; the rest of the batch is for its claims. A larger action is committed without
/// other actions, and with as many claims as still fit.
pub(crate) const ACTION_BYTES_MAX: usize = BATCH_BYTES_MAX / 2;

/// The shared commit that is under way.
#[derive(Debug)]
pub(crate) struct SharedCommit {
    pub(crate) actions: Vec<Action>,
    /// Index of the handler, and how many events it asked for.
    pub(crate) claims: Vec<(usize, usize)>,
    /// The time of the shared commit's batch.
    pub(crate) at: Timestamp,
}

/// Actions that wait for the next shared commit.
#[derive(Debug, Default)]
pub(crate) struct ActionQueue {
    waiting: VecDeque<Action>,
    /// When the oldest action stops waiting for a claim to share its commit with.
    commit_at: Option<Mono>,
}

impl ActionQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts actions back to the front, in their order.
    pub(crate) fn requeue(&mut self, now: Mono, actions: Vec<Action>) {
        if !actions.is_empty() {
            self.commit_at = Some(now);
        }
        actions.into_iter().rev().for_each(|action| self.waiting.push_front(action));
    }

    pub(crate) fn commit_at(&self) -> Option<Mono> {
        self.commit_at
    }
}

impl Worker {
    /// Adds the action to the next shared commit, which is made as soon as the last one is durable.
    pub(crate) fn queue_action(&mut self, now: Now, action: Action) {
        self.want_next_of_key(&action);
        self.actions.waiting.push_back(action);
        self.actions.commit_at = Some(now.mono);
    }

    /// Lets the action wait for a claim to share a commit with, for at most `ack_linger_ms`.
    pub(crate) fn queue_lingering(&mut self, now: Now, action: Action) {
        self.want_next_of_key(&action);
        self.actions.waiting.push_back(action);
        self.actions.commit_at.get_or_insert(now.mono + self.config.ack_linger_ms);
    }

    /// For a handler in order of keys: the shared commit that ends an event may also claim the next one of its key,
    /// because actions come before claims in a batch.
    fn want_next_of_key(&mut self, action: &Action) {
        if let Some(handler) = action.ends_event_of().map(|at| &mut self.handlers[at]) {
            handler.wants_claim |= handler.is_ordered();
        }
    }

    pub(crate) fn commit_next(&mut self, now: Now) {
        if self.commit.is_some() || matches!(self.phase, Phase::Fresh | Phase::Failed | Phase::Stopped) {
            return;
        }
        let claims = self.wanted_claims(now);
        let nothing_else = self.runs.is_empty() && self.queued() == 0;
        let actions_due = !self.actions.is_empty()
            && (nothing_else || self.actions.commit_at.is_some_and(|at| at <= now.mono));
        if claims.is_empty() && !actions_due {
            return;
        }
        self.mark_with_commit(now);
        let (mut actions, mut bytes) = (Vec::new(), 0);
        while let Some(action) = self.actions.waiting.front() {
            let with_it = bytes + action.bytes();
            if !actions.is_empty() && (actions.len() >= ACTIONS_MAX || with_it > ACTION_BYTES_MAX) {
                break;
            }
            bytes = with_it;
            actions.extend(self.actions.waiting.pop_front());
        }
        self.actions.commit_at = (!self.actions.waiting.is_empty()).then_some(now.mono);
        let claims = self.fit_claims(now, claims, BATCH_BYTES_MAX.saturating_sub(bytes));
        self.submit(now, SharedCommit { actions, claims, at: now.wall });
    }

    /// Each handler gets its share of the room, and what those before it left over. A handler that gets nothing
    /// still wants a claim, and claims with the next commit.
    fn fit_claims(&self, now: Now, claims: Vec<(usize, usize)>, mut room: usize) -> Vec<(usize, usize)> {
        let mut left = claims.len();
        let mut fitting = Vec::with_capacity(left);
        for (at, wanted) in claims {
            let one = self.claim_op(now, at, 1, 0).bytes().max(1);
            let share = (room / left.max(1) / one).max(1);
            let events_max = wanted.min(share).min(room / one);
            left -= 1;
            room -= events_max * one;
            if events_max > 0 {
                fitting.push((at, events_max));
            }
        }
        fitting
    }

    fn claim_op(&self, now: Now, at: usize, events_max: usize, start_max: usize) -> Op {
        let handler = &self.handlers[at];
        Op::Claim(Claim {
            topic: handler.topic.clone(),
            handler: handler.spec.id.clone(),
            session: self.identity.session.clone(),
            events_max,
            bytes_max: self.config.claim_bytes_max,
            lease_until: now.wall + handler.limits.lease_ms,
            start_max,
            order: handler.limits.order,
        })
    }

    fn wanted_claims(&self, now: Now) -> Vec<(usize, usize)> {
        if self.phase != Phase::Working || self.starts_held || self.is_paused(now) {
            return Vec::new();
        }
        let slot_free = self.slots_taken() < self.config.handler_concurrency;
        // Slow runs occupy all slots: leave the events to sessions that may be faster.
        if !slot_free && self.runs.values().all(|run| self.is_stale(now, run.handler, &run.ticket)) {
            return Vec::new();
        }
        let wanted_claims = self.order.iter().map(|at| (*at, self.handlers[*at].claim_size(now, slot_free)));
        wanted_claims.filter(|(_, wanted)| *wanted > 0).collect()
    }

    pub(crate) fn submit(&mut self, now: Now, mut commit: SharedCommit) {
        commit.at = now.wall;
        // The clock was set back meanwhile: a schedule must not fire early, so it fires again when its time has come.
        commit.actions.retain(|action| match &action.follow_up {
            FollowUp::Fired { schedule, at, .. } if at.last().is_some_and(|fire| *fire > now.wall) => {
                self.fire_postponed(*schedule);
                false
            }
            _ => true,
        });
        let mut batch = Batch {
            nonce: self.prng.next(),
            now: now.wall,
            durability: Durability::Fsync,
            ..Batch::default()
        };
        for action in &commit.actions {
            batch.checks.extend(action.checks.iter().cloned());
            batch.ops.extend(action.ops.iter().cloned());
        }
        let starts = self.starts_of(now, &commit.claims);
        for ((at, events_max), start_max) in commit.claims.iter().zip(starts) {
            // This claim does not see events that become ready from here on.
            self.handlers[*at].wants_claim = false;
            batch.ops.push(self.claim_op(now, *at, *events_max, start_max));
        }
        let token = self.token(Pending::SharedCommit);
        self.commit = Some(commit);
        self.effects.push(Effect::Commit { token, batch });
    }

    pub(crate) fn on_shared_commit(&mut self, now: Now, outcome: Outcome) {
        let Some(mut commit) = self.commit.take() else { return };
        match outcome {
            Outcome::Done(done) => self.on_committed(now, commit, done),
            Outcome::Refused(refusal) => {
                self.drop_refused(now, &mut commit, &refusal);
                if !commit.actions.is_empty() || !commit.claims.is_empty() {
                    self.submit(now, commit);
                }
            }
        }
    }

    /// A check of one action was refused: repeats the shared commit without that action.
    fn drop_refused(&mut self, now: Now, commit: &mut SharedCommit, refusal: &Refusal) {
        let mut first = 0;
        let at = commit.actions.iter().position(|action| {
            first += action.checks.len();
            refusal.check < first
        });
        if let Some(at) = at {
            let action = commit.actions.remove(at);
            self.on_refused(now, action, refusal);
        }
    }

    fn on_refused(&mut self, now: Now, action: Action, refusal: &Refusal) {
        match action.follow_up {
            FollowUp::Acked { handler, event }
            | FollowUp::Released { handler, event, .. }
            | FollowUp::RunAgain { handler, event, .. }
            | FollowUp::Snoozed { handler, event, .. }
            | FollowUp::Discarded { handler, event, .. }
            | FollowUp::DeadLettered { handler, event, .. } => {
                self.effects.push(Effect::Note(Note::LeaseExpired { handler, event: event.id.clone() }));
            }
            FollowUp::Renewed { run, .. } => self.on_lease_lost(now, run),
            FollowUp::Marked { run, .. } => self.on_mark_refused(now, run),
            FollowUp::Fired { schedule, .. } => self.fire_refused(now, schedule, refusal.found.as_ref()),
            // Another session has the event, or has registered the handler first.
            FollowUp::GivenBack { .. } | FollowUp::Nothing => {}
        }
    }

    fn on_committed(&mut self, now: Now, commit: SharedCommit, done: Done) {
        // The first shared commits carry the registration; it is complete when no action is waiting any more.
        self.registered |= self.actions.is_empty();
        for action in commit.actions {
            self.wake_for_appends(&action.ops);
            // A claim in this same shared commit has already seen that the event ended; otherwise the next claim must.
            if action.ends_event_of().is_none_or(|of| commit.claims.iter().all(|(at, _)| *at != of)) {
                self.want_next_of_key(&action);
            }
            self.on_durable(now, action.follow_up);
        }
        let mut got = vec![0; commit.claims.len()];
        for claimed in done.claimed {
            let owner = commit.claims.iter().position(|(at, _)| {
                let handler = &self.handlers[*at];
                handler.spec.id == claimed.ticket.handler
            });
            if let Some(owner) = owner {
                got[owner] += 1;
                let at = commit.claims[owner].0;
                self.handlers[at].enqueue(claimed);
            }
        }
        // `more` is a single flag for all claims: if some claim got all it asked for, it is taken to mean that one.
        let some_full = commit.claims.iter().zip(&got).any(|((_, asked), got)| got >= asked);
        for ((at, asked), got) in commit.claims.iter().zip(&got) {
            let poll_at = now.mono + self.config.event_poll_interval_ms;
            let handler = &mut self.handlers[*at];
            let already = handler.wants_claim;
            handler.on_claimed(*asked, *got, done.more && !some_full, poll_at);
            handler.wants_claim |= already;
            if std::mem::take(&mut handler.claims_unknown) && !handler.wants_claim {
                self.read_first_claim(*at, commit.at);
            }
        }
        if self.phase == Phase::Stopping {
            self.give_all_back(now);
        }
    }

    fn on_durable(&mut self, now: Now, follow_up: FollowUp) {
        match follow_up {
            FollowUp::Nothing => {}
            FollowUp::Acked { .. } => self.counts.succeeded += 1,
            FollowUp::Released { handler, event, attempts, due, error } => {
                self.counts.failed += 1;
                self.handlers[handler].ready_again_at(due);
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::Failed {
                    handler,
                    event,
                    attempts,
                    retry_at: due,
                    error,
                }));
            }
            FollowUp::Snoozed { handler, event, snoozes, due, reason } => {
                self.counts.snoozed += 1;
                self.handlers[handler].ready_again_at(due);
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::Snoozed {
                    handler,
                    event,
                    snoozes,
                    until: due,
                    reason,
                }));
            }
            FollowUp::Discarded { handler, event, reason } => {
                self.counts.discarded += 1;
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::Discarded { handler, event, reason }));
            }
            FollowUp::DeadLettered { handler, event, attempts, error } => {
                self.counts.dead_lettered += 1;
                let event = event.id.clone();
                self.effects.push(Effect::Note(Note::DeadLettered { handler, event, attempts, error }));
            }
            FollowUp::RunAgain { handler, event, identity, conflicts, due } => {
                self.handlers[handler].ready_again_at(due);
                self.repeats_until = self.repeats_until.max(due);
                let (event, retry_at) = (event.id.clone(), due);
                self.effects.push(Effect::Note(Note::Conflict {
                    handler,
                    event,
                    identity,
                    conflicts,
                    retry_at,
                }));
            }
            FollowUp::GivenBack { handler } => self.handlers[handler].wants_claim = true,
            FollowUp::Renewed { run, ticket } => self.on_renewed(now, run, ticket),
            FollowUp::Marked { run, ticket } => self.on_marked(now, run, ticket),
            FollowUp::Fired { schedule, row, at } => self.on_fired(schedule, row, &at),
        }
    }

    /// Wakes the handlers of these topics: they have something to claim, now or when it is due.
    pub(crate) fn wake_for_appends(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Append(append) => self.on_new_events(&append.stream.topic),
                Op::Delay(delay) => self.expect_due(&delay.key),
                _ => {}
            }
        }
    }

    pub(crate) fn on_new_events(&mut self, topic: &TopicKey) {
        for handler in self.handlers.iter_mut().filter(|handler| handler.topic == *topic) {
            handler.wants_claim = true;
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.handlers.iter().map(Handler::queued).sum()
    }
}
