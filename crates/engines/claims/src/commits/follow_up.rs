//! Consequences of an action: when it is durable, and when one of its checks was refused.

use millrace_model::{Now, Refusal, RunCounts, Timestamp};

use crate::commits::action::{Action, FollowUp};
use crate::interface::effect::Note;
use crate::worker::Worker;

/// Counts of runs that have ended, and repeats that are still to come.
#[derive(Debug, Default)]
pub(crate) struct EndedRuns {
    /// How runs ended since the session began, as far as that is durable.
    pub(crate) counts: RunCounts,
    /// Until this time some event waits to be run again because of a conflict, and the worker is not idle. By the wall
    /// clock, like the handler's own wake-up: both clocks are rounded down to milliseconds, and the monotonic one may
    /// reach the moment first, before the event can be claimed.
    repeats_until: Timestamp,
}

impl EndedRuns {
    pub(crate) fn has_repeats(&self, now: Now) -> bool {
        self.repeats_until > now.wall
    }
}

impl Worker {
    pub(crate) fn on_durable(&mut self, now: Now, follow_up: FollowUp) {
        match follow_up {
            FollowUp::Nothing => {}
            FollowUp::Acked { .. } => self.ended.counts.succeeded += 1,
            FollowUp::Released { handler, event, attempts, due, error } => {
                self.ended.counts.failed += 1;
                self.handlers[handler].ready_again_at(due);
                let (event, retry_at) = (event.id.clone(), due);
                self.requests.note(Note::Failed { handler, event, attempts, retry_at, error });
            }
            FollowUp::Snoozed { handler, event, snoozes, due, reason } => {
                self.ended.counts.snoozed += 1;
                self.handlers[handler].ready_again_at(due);
                let (event, until) = (event.id.clone(), due);
                self.requests.note(Note::Snoozed { handler, event, snoozes, until, reason });
            }
            FollowUp::Discarded { handler, event, reason } => {
                self.ended.counts.discarded += 1;
                self.requests.note(Note::Discarded { handler, event: event.id.clone(), reason });
            }
            FollowUp::DeadLettered { handler, event, attempts, error } => {
                self.ended.counts.dead_lettered += 1;
                let event = event.id.clone();
                self.requests.note(Note::DeadLettered { handler, event, attempts, error });
            }
            FollowUp::RunAgain { handler, event, identity, conflicts, due } => {
                self.handlers[handler].ready_again_at(due);
                self.ended.repeats_until = self.ended.repeats_until.max(due);
                let (event, retry_at) = (event.id.clone(), due);
                self.requests.note(Note::Conflict { handler, event, identity, conflicts, retry_at });
            }
            FollowUp::GivenBack { handler } => self.handlers[handler].want_claim(),
            FollowUp::Renewed { run, ticket } => self.on_renewed(now, run, ticket),
            FollowUp::Marked { run, ticket } => self.on_marked(now, run, ticket),
            FollowUp::Fired { schedule, row, at } => self.on_fired(schedule, row, &at),
        }
    }

    pub(crate) fn on_refused(&mut self, now: Now, action: Action, refusal: &Refusal) {
        match action.follow_up {
            FollowUp::Acked { handler, event }
            | FollowUp::Released { handler, event, .. }
            | FollowUp::RunAgain { handler, event, .. }
            | FollowUp::Snoozed { handler, event, .. }
            | FollowUp::Discarded { handler, event, .. }
            | FollowUp::DeadLettered { handler, event, .. } => {
                self.requests.note(Note::LeaseExpired { handler, event: event.id.clone() });
            }
            FollowUp::Renewed { run, .. } => self.on_lease_lost(now, run),
            FollowUp::Marked { run, .. } => self.on_mark_refused(now, run),
            FollowUp::Fired { schedule, .. } => self.on_fire_refused(now, schedule, refusal.found.as_ref()),
            // Another session has the event, or has registered the handler first.
            FollowUp::GivenBack { .. } | FollowUp::Nothing => {}
        }
    }
}
