//! The shared commit: one batch at a time, with all actions (`action.rs`) that have gathered, and claims for the handlers
//! that want more events. The commits of running handlers (`running/handler_commit.rs`) do not wait for it.

use millrace_model::{
    BATCH_BYTES_MAX, Batch, Done, Durability, Mono, Now, Op, Outcome, Refusal, Timestamp, never,
};

use crate::claiming::claims::WantedClaim;
use crate::commits::action::{Action, FollowUp};
use crate::commits::action_queue::ActionQueue;
use crate::commits::too_large::Size;
use crate::requests::PendingCommit;
use crate::worker::Worker;

/// The shared commit that is under way, and the actions that wait for the next one.
#[derive(Debug, Default)]
pub(crate) struct SharedCommits {
    queue: ActionQueue,
    under_way: Option<SharedCommit>,
    /// The last commit of a run is under way that carries a claim: no other commit claims until it has ended.
    claims_elsewhere: bool,
}

#[derive(Debug)]
struct SharedCommit {
    actions: Vec<Action>,
    claims: Vec<WantedClaim>,
    /// The time of the batch.
    at: Timestamp,
}

impl SharedCommits {
    /// Whether everything that was queued is durable.
    pub(crate) fn is_quiet(&self) -> bool {
        self.under_way.is_none() && self.queue.is_empty()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether a commit under way claims, or may claim.
    pub(crate) fn are_claiming(&self) -> bool {
        self.is_under_way() || self.claims_elsewhere
    }

    pub(crate) fn claim_elsewhere(&mut self, claims: bool) {
        self.claims_elsewhere = claims;
    }

    pub(crate) fn queue(&self) -> &ActionQueue {
        &self.queue
    }

    /// When the queued actions must be committed, if nothing else happens.
    pub(crate) fn next_commit(&self) -> Option<Mono> {
        self.queue.commit_at().filter(|_| self.under_way.is_none())
    }

    /// The store has failed: nobody will learn whether the commit under way was written.
    pub(crate) fn give_up(&mut self) {
        self.under_way = None;
    }

    /// Returns every action that is not durable yet.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.under_way.iter().flat_map(|commit| &commit.actions).chain(self.queue.iter())
    }
}

impl Worker {
    /// Adds the action to the next shared commit, which is made as soon as the last one is durable.
    pub(crate) fn queue_action(&mut self, now: Now, action: Action) {
        self.want_next_of_key(&action);
        self.commits.queue.push(now, action);
    }

    /// Lets the action wait for a claim to share a commit with, for at most `ack_linger_ms`.
    pub(crate) fn queue_lingering(&mut self, now: Now, action: Action) {
        self.want_next_of_key(&action);
        self.commits.queue.push_lingering(now.mono + self.config.ack_linger_ms, action);
    }

    /// For a handler in order of keys: the shared commit that ends an event may also claim the next one of its key,
    /// because actions come before claims in a batch.
    fn want_next_of_key(&mut self, action: &Action) {
        if let Some(at) = action.ends_event_of() {
            self.handlers[at].want_next_of_key();
        }
    }

    pub(crate) fn commit_next(&mut self, now: Now) {
        if self.commits.is_under_way() || !self.session.may_commit() {
            return;
        }
        let claims = if self.commits.are_claiming() { Vec::new() } else { self.wanted_claims(now) };
        let nothing_else = self.runs.is_empty() && self.handlers.queued() == 0;
        let queue = &self.commits.queue;
        let actions_due = !queue.is_empty() && (nothing_else || queue.is_due(now));
        if claims.is_empty() && !actions_due {
            return;
        }
        self.mark_with_commit(now);
        let (actions, bytes) = self.commits.queue.take_next(now);
        let claims = self.fit_claims(now, claims, BATCH_BYTES_MAX.saturating_sub(bytes));
        self.submit(now, actions, claims);
    }

    fn submit(&mut self, now: Now, mut actions: Vec<Action>, claims: Vec<WantedClaim>) {
        // The clock was set back meanwhile: a schedule must not fire early, so it fires again when its time has come.
        actions.retain(|action| match &action.follow_up {
            FollowUp::Fired { schedule, at, .. } if at.last().is_some_and(|fire| *fire > now.wall) => {
                self.schedules[*schedule].on_fire_postponed();
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
        for action in &actions {
            batch.checks.extend(action.checks.iter().cloned());
            batch.ops.extend(action.ops.iter().cloned());
        }
        let starts = self.starts_of(now, &claims);
        for (claim, start_max) in claims.iter().zip(starts) {
            self.handlers[claim.handler].on_claim_sent();
            batch.ops.push(self.claim_op(now, *claim, start_max));
        }
        self.commits.under_way = Some(SharedCommit { actions, claims, at: now.wall });
        self.requests.commit(PendingCommit::Shared, batch);
    }

    fn take_shared_commit(&mut self) -> Option<SharedCommit> {
        let commit = self.commits.under_way.take();
        if commit.is_none() {
            never!(self.broken, "a shared commit has ended, but none was under way");
        }
        commit
    }

    pub(crate) fn on_shared_commit(&mut self, now: Now, outcome: Outcome) {
        let Some(mut commit) = self.take_shared_commit() else { return };
        match outcome {
            Outcome::Done(done) => self.on_committed(now, commit, done),
            Outcome::Refused(refusal) => {
                self.drop_refused(now, &mut commit, &refusal);
                if !commit.actions.is_empty() || !commit.claims.is_empty() {
                    self.submit(now, commit.actions, commit.claims);
                }
            }
        }
    }

    /// A check of one action was refused: the commit is repeated without that action.
    fn drop_refused(&mut self, now: Now, commit: &mut SharedCommit, refusal: &Refusal) {
        let mut first = 0;
        let at = commit.actions.iter().position(|action| {
            first += action.checks.len();
            refusal.check < first
        });
        match at {
            Some(at) => {
                let action = commit.actions.remove(at);
                self.on_refused(now, action, refusal);
            }
            None => never!(self.broken, "check {} was refused, but there are only {first}", refusal.check),
        }
    }

    fn on_committed(&mut self, now: Now, commit: SharedCommit, done: Done) {
        // The first shared commits carry the registration; it is complete when no action is waiting any more.
        if self.commits.queue.is_empty() {
            self.retention.on_registered();
        }
        let SharedCommit { actions, claims, at } = commit;
        for action in actions {
            self.wake_for_appends(&action.ops);
            // A claim in this same commit has already seen that the event ended; otherwise the next claim must.
            if action.ends_event_of().is_none_or(|of| claims.iter().all(|claim| claim.handler != of)) {
                self.want_next_of_key(&action);
            }
            self.on_durable(now, action.follow_up);
        }
        self.on_claimed(now, at, &claims, done);
        if self.session.is_stopping() {
            self.give_all_back(now);
        }
    }

    /// Wakes the handlers of these topics: they have something to claim, now or when it is due.
    pub(crate) fn wake_for_appends(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Append(append) => self.handlers.on_new_events(&append.stream.topic),
                Op::Delay(delay) => self.mover.expect(&delay.key),
                _ => {}
            }
        }
    }

    /// Finds the part that is too large: actions are committed one by one, claims without actions.
    pub(crate) fn on_shared_commit_too_large(&mut self, now: Now, size: Size) {
        let Some(SharedCommit { mut actions, claims, .. }) = self.take_shared_commit() else { return };
        let alone = actions.len() + claims.len().min(1) == 1;
        let rest = actions.split_off(actions.len().min(1));
        self.commits.queue.requeue(now, rest);
        let poll_at = now.mono + self.config.event_poll_interval_ms;
        for claim in claims {
            let handler = &mut self.handlers[claim.handler];
            match alone {
                true => handler.on_claim_too_large(poll_at),
                false => handler.on_claim_deferred(),
            }
        }
        match actions.pop() {
            Some(action) if alone => self.report_too_large(now, action, size),
            Some(action) => self.submit(now, vec![action], Vec::new()),
            None if alone => self.note_too_large("claims: lower event_claim_limit".to_owned(), size),
            None => {}
        }
    }
}
