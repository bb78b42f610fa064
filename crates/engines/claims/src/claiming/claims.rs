//! The claims of a shared commit: which handlers claim how many events, and how many of those may start at once.

use std::collections::BTreeMap;

use millrace_model::{Claim, Done, Now, Op, Timestamp, never};

use crate::claiming::handler::ClaimResult;
use crate::worker::Worker;

/// A claim of one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedClaim {
    pub(crate) handler: usize,
    pub(crate) events_max: usize,
}

impl Worker {
    pub(crate) fn wanted_claims(&self, now: Now) -> Vec<WantedClaim> {
        if !self.may_start(now) {
            return Vec::new();
        }
        let slot_free = self.slots_taken() < self.config.handler_concurrency;
        // Slow runs occupy all slots: leave the events to sessions that may be faster.
        if !slot_free && self.runs.all(|run| self.is_stale(now, run.handler(), run.ticket())) {
            return Vec::new();
        }
        let wanted = self.handlers.by_priority().map(|handler| {
            let events_max = self.handlers[handler].claim_size(now, slot_free);
            WantedClaim { handler, events_max }
        });
        wanted.filter(|claim| claim.events_max > 0).collect()
    }

    /// Each handler gets its share of the room, and what those before it left over. A handler that gets nothing still
    /// wants a claim, and claims with the next commit.
    pub(crate) fn fit_claims(&self, now: Now, claims: Vec<WantedClaim>, mut room: usize) -> Vec<WantedClaim> {
        let mut left = claims.len();
        let mut fitting = Vec::with_capacity(left);
        for WantedClaim { handler, events_max } in claims {
            let one = self.claim_op(now, WantedClaim { handler, events_max: 1 }, 0).bytes().max(1);
            let share = (room / left.max(1) / one).max(1);
            let events_max = events_max.min(share).min(room / one);
            left -= 1;
            room -= events_max * one;
            if events_max > 0 {
                fitting.push(WantedClaim { handler, events_max });
            }
        }
        fitting
    }

    pub(crate) fn claim_op(&self, now: Now, claim: WantedClaim, start_max: usize) -> Op {
        let handler = &self.handlers[claim.handler];
        Op::Claim(Claim {
            topic: handler.topic().clone(),
            handler: handler.id().clone(),
            session: self.identity.session.clone(),
            events_max: claim.events_max,
            bytes_max: self.config.claim_bytes_max,
            lease_until: now.wall + handler.lease_ms(),
            start_max,
            order: handler.limits().order,
        })
    }

    /// How many events each claim may mark as to be started: the slots that stay free until the commit is durable, given
    /// to the handlers one by one in their turn.
    pub(crate) fn starts_of(&self, now: Now, claims: &[WantedClaim]) -> Vec<usize> {
        let mut starts = vec![0; claims.len()];
        if !self.may_start(now) {
            return starts;
        }
        let taken = self.slots_taken() + self.handlers.queued();
        let slots = self.config.handler_concurrency.saturating_sub(taken);
        let mut left = slots.min(self.iteration.left(self.config.max_events_per_iteration));
        let of_handler: BTreeMap<usize, usize> =
            (0..).zip(claims).map(|(at, claim)| (claim.handler, at)).collect();
        let in_rotation: Vec<usize> =
            self.handlers.in_rotation().filter_map(|handler| of_handler.get(&handler).copied()).collect();
        loop {
            let before = left;
            for at in &in_rotation {
                let WantedClaim { handler, events_max } = claims[*at];
                if left > 0 && starts[*at] < events_max.min(self.handlers[handler].starts_max(now)) {
                    starts[*at] += 1;
                    left -= 1;
                }
            }
            if left == before {
                return starts;
            }
        }
    }

    /// Queues the events that the claims of a commit got.
    pub(crate) fn on_claimed(&mut self, now: Now, at: Timestamp, claims: &[WantedClaim], done: Done) {
        let mut got = vec![0; claims.len()];
        // Events of one claim come one after the other, so the last owner is tried first.
        let mut last_owner = 0;
        for claimed in done.claimed {
            let id = &claimed.ticket.handler;
            let owns = |owner: &usize| {
                claims.get(*owner).is_some_and(|claim| self.handlers[claim.handler].id() == id)
            };
            let owner = Some(last_owner).filter(owns).or_else(|| (0..claims.len()).find(owns));
            match owner {
                Some(owner) => {
                    got[owner] += 1;
                    last_owner = owner;
                    self.handlers[claims[owner].handler].enqueue(claimed);
                }
                None => never!(self.broken, "an event was claimed for {id}, which had not asked for one"),
            }
        }
        // `more` is a single flag for all claims: if some claim got all it asked for, it is taken to mean that one.
        let some_full = claims.iter().zip(&got).any(|(claim, got)| *got >= claim.events_max);
        if got.iter().any(|got| *got > 0) {
            self.iteration.on_claimed();
        }
        for (claim, got) in claims.iter().zip(got) {
            let poll_at = now.mono + self.config.event_poll_interval_ms;
            let (asked, more) = (claim.events_max, done.more && !some_full);
            if self.handlers[claim.handler].on_claimed(ClaimResult { asked, got, more }, poll_at) {
                self.read_first_claim(claim.handler, at);
            }
        }
    }
}
