//! Batches that the store refused as too large. Every batch is built to fit, so this is a second line of defence: the
//! refusal is reported to those concerned, and the session goes on.

use millrace_model::Now;

use crate::commits::action::{Action, FollowUp};
use crate::commits::shared_commit::SharedCommit;
use crate::interface::effect::{Effect, Note};
use crate::interface::error::CommitError;
use crate::interface::input::Token;
use crate::worker::{Pending, Worker};

/// The size of the batch, and the store's limit.
#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: usize,
    limit: usize,
}

impl Worker {
    pub(crate) fn too_large(&mut self, now: Now, token: Token, bytes: usize, limit: usize) {
        let size = Size { bytes, limit };
        match self.pending.remove(&token) {
            Some(Pending::SharedCommit) => self.on_shared_commit_too_large(now, size),
            Some(Pending::HandlerCommit(under_way)) => {
                self.on_handler_commit_failed(now, under_way.run(), CommitError::TooLarge { bytes, limit });
            }
            Some(Pending::SweepCommit) => {
                self.sweep = None;
                self.sweep_at = now.mono + self.config.retention_interval_ms;
                self.note_too_large("a slice of retention: lower retention_rows_max".to_owned(), size);
            }
            Some(Pending::DueMove(by, _)) => {
                self.due_too_large(now, by);
                self.note_too_large("delayed events that are due".to_owned(), size);
            }
            // The token belongs to a read or is unknown: not a commit of this worker.
            Some(other) => {
                self.pending.insert(token, other);
            }
            None => {}
        }
    }

    /// Finds the part that is too large: actions are committed one by one, claims without actions.
    fn on_shared_commit_too_large(&mut self, now: Now, size: Size) {
        let Some(SharedCommit { mut actions, claims, at }) = self.commit.take() else { return };
        let alone = actions.len() + claims.len().min(1) == 1;
        let rest = actions.split_off(actions.len().min(1));
        self.actions.requeue(now.mono, rest);
        let poll_at = now.mono + self.config.event_poll_interval_ms;
        for (of, _) in claims {
            let handler = &mut self.handlers[of];
            handler.wants_claim = !alone;
            if alone {
                handler.halve_prefetch();
                handler.poll_at = poll_at;
            }
        }
        match actions.pop() {
            Some(action) if alone => self.report_too_large(now, action, size),
            Some(action) => self.submit(now, SharedCommit { actions: vec![action], claims: Vec::new(), at }),
            None if alone => self.note_too_large("claims: lower event_claim_limit".to_owned(), size),
            None => {}
        }
    }

    /// Reports an action that cannot be written. A claim that it should have ended expires, which costs an attempt if the
    /// start of the run is written. From the second run on it always is, so the event is given up in the end.
    fn report_too_large(&mut self, now: Now, action: Action, size: Size) {
        let of = |what: &str, event: &millrace_model::Event| format!("{what} of event {}", event.id);
        let what = match action.follow_up {
            FollowUp::Acked { event, .. } => of("the acknowledgement", &event),
            FollowUp::Released { event, .. } => of("the failed attempt", &event),
            FollowUp::RunAgain { event, .. } => of("the conflict", &event),
            FollowUp::Snoozed { event, .. } => of("the snooze", &event),
            FollowUp::Discarded { event, .. } => of("the discard", &event),
            FollowUp::DeadLettered { event, .. } => of("the dead letter", &event),
            FollowUp::GivenBack { .. } => "an event that was to be given back".to_owned(),
            FollowUp::Renewed { run, .. } => {
                self.on_lease_lost(now, run);
                "the renewal of a lease".to_owned()
            }
            FollowUp::Marked { run, .. } => {
                self.on_mark_refused(now, run);
                "the mark of a run".to_owned()
            }
            FollowUp::Fired { schedule, .. } => {
                self.fire_failed(schedule);
                format!("schedule {:?}", self.schedules[schedule].spec.name)
            }
            FollowUp::Nothing => "what the session says of itself".to_owned(),
        };
        self.note_too_large(what, size);
    }

    fn note_too_large(&mut self, what: String, Size { bytes, limit }: Size) {
        self.effects.push(Effect::Note(Note::TooLarge { what, bytes, limit }));
    }
}
