//! Batches that the store refused as too large. Every batch is built to fit, so this is a second line of defence: the
//! refusal is reported to those concerned, and the session goes on.

use millrace_model::Now;

use crate::action::{Act, Then};
use crate::effect::{Effect, Note};
use crate::error::CommitError;
use crate::flight::Flight;
use crate::input::Token;
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
            Some(Pending::Flight) => self.flight_too_large(now, size),
            Some(Pending::Commit(under_way)) => {
                self.commit_failed(now, under_way.run(), CommitError::TooLarge { bytes, limit });
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
            #[cfg(feature = "sabotage")]
            Some(Pending::Apart) => {}
            // The token belongs to a read or is unknown: not a commit of this worker.
            Some(other) => {
                self.pending.insert(token, other);
            }
            None => {}
        }
    }

    /// Finds the part that is too large: acts are committed one by one, claims without acts.
    fn flight_too_large(&mut self, now: Now, size: Size) {
        let Some(Flight { mut acts, claims, at }) = self.flight.take() else { return };
        let alone = acts.len() + claims.len().min(1) == 1;
        let rest = acts.split_off(acts.len().min(1));
        self.gate.back(now.mono, rest);
        let look_at = now.mono + self.config.event_poll_interval_ms;
        for (of, _) in claims {
            let handler = &mut self.handlers[of];
            handler.wants_claim = !alone;
            if alone {
                handler.halve_prefetch();
                handler.look_at = look_at;
            }
        }
        match acts.pop() {
            Some(act) if alone => self.leave_behind(now, act, size),
            Some(act) => self.submit(now, Flight { acts: vec![act], claims: Vec::new(), at }),
            None if alone => self.note_too_large("claims: lower event_claim_limit".to_owned(), size),
            None => {}
        }
    }

    /// Reports an act that cannot be written. A claim that it should have ended expires, which costs an attempt if the
    /// start of the run is written. From the second run on it always is, so the event is given up in the end.
    fn leave_behind(&mut self, now: Now, act: Act, size: Size) {
        let of = |what: &str, event: &millrace_model::Event| format!("{what} of event {}", event.id);
        let what = match act.then {
            Then::Acked { event, .. } => of("the acknowledgement", &event),
            Then::Released { event, .. } => of("the failed try", &event),
            Then::RunAgain { event, .. } => of("the conflict", &event),
            Then::Snoozed { event, .. } => of("the snooze", &event),
            Then::Discarded { event, .. } => of("the discard", &event),
            Then::DeadLettered { event, .. } => of("the dead letter", &event),
            Then::GivenBack { .. } => "an event that was to be given back".to_owned(),
            Then::Renewed { run, .. } => {
                self.lease_lost(now, run);
                "the renewal of a lease".to_owned()
            }
            Then::Marked { run, .. } => {
                self.mark_refused(now, run);
                "the mark of a run".to_owned()
            }
            Then::Fired { schedule, .. } => {
                self.cannot_fire(schedule);
                format!("schedule {:?}", self.schedules[schedule].spec.name)
            }
            Then::Nothing => "what the session says of itself".to_owned(),
        };
        self.note_too_large(what, size);
    }

    fn note_too_large(&mut self, what: String, Size { bytes, limit }: Size) {
        self.effects.push(Effect::Note(Note::TooLarge { what, bytes, limit }));
    }
}
