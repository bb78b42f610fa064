//! Batches that the store refused as too large. Every batch is built to fit, so this is a second line of defence: the
//! refusal is reported to those concerned, and the session goes on.

use millrace_model::Now;

use crate::commits::action::{Action, FollowUp};
use crate::interface::effect::Note;
use crate::interface::error::CommitError;
use crate::interface::input::Token;
use crate::requests::PendingCommit;
use crate::worker::Worker;

/// The size of the batch, and the store's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    bytes: usize,
    limit: usize,
}

impl Worker {
    pub(crate) fn on_too_large(&mut self, now: Now, token: Token, bytes: usize, limit: usize) {
        let size = Size { bytes, limit };
        match self.requests.commit_ended(token) {
            Some(PendingCommit::Shared) => self.on_shared_commit_too_large(now, size),
            Some(PendingCommit::Handler(commit)) => {
                self.on_handler_commit_failed(now, *commit, CommitError::TooLarge { bytes, limit });
            }
            Some(PendingCommit::Sweep) => {
                self.retention.end_sweep(now.mono + self.config.retention_interval_ms);
                self.note_too_large("a slice of retention: lower retention_rows_max".to_owned(), size);
            }
            Some(PendingCommit::DueMove(by, _)) => {
                self.on_due_too_large(now, by);
                self.note_too_large("delayed events that are due".to_owned(), size);
            }
            None => {}
        }
    }

    /// Reports an action that cannot be written. A claim that it should have ended expires, which costs an attempt if the
    /// start of the run is written. From the second run on it always is, so the event is given up in the end.
    pub(crate) fn report_too_large(&mut self, now: Now, action: Action, size: Size) {
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
                self.schedules[schedule].on_fire_failed();
                format!("schedule {:?}", self.schedules[schedule].name())
            }
            FollowUp::Nothing => "what the session says of itself".to_owned(),
        };
        self.note_too_large(what, size);
    }

    pub(crate) fn note_too_large(&mut self, what: String, Size { bytes, limit }: Size) {
        self.requests.note(Note::TooLarge { what, bytes, limit });
    }
}
