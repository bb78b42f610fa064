//! Continues after a confirmed commit or a finished search, as the entry in `pending` says.

use std::sync::Arc;

use millrace_model::{Appended, BATCH_BYTES_MAX, Event, Now, Offset, Outcome, never};

use crate::bus::Bus;
use crate::interface::input::Token;
use crate::interface::note::Note;
use crate::interface::reply::{BusError, Reply};
use crate::lifecycle::pending::{PendingAppend, PendingEffect};

impl Bus {
    pub(crate) fn on_committed(&mut self, now: Now, token: Token, outcome: Outcome) {
        if matches!(&outcome, Outcome::Done(done) if done.incarnation_kept) {
            self.look_up_incarnations(token);
        }
        self.end_row_commit(token);
        // Given up when the store failed.
        let Some(pending) = self.pending.complete(token) else { return };
        let (pending, appended) = match (pending, outcome) {
            (PendingEffect::DuplicateOnly { duplicate_only, then }, Outcome::Refused(refusal)) => {
                for to in then.into_requesters() {
                    self.refuse(to, duplicate_only.refusal(refusal.check));
                }
                return;
            }
            (PendingEffect::MoveDue { by, .. }, Outcome::Refused(_)) => return self.already_moved(now, by),
            (PendingEffect::MoveAlone { by, event }, Outcome::Refused(refusal)) => {
                return self.alone_refused(now, by, &event, &refusal);
            }
            (PendingEffect::DuplicateOnly { then, .. }, Outcome::Done(done)) => (*then, done.appended),
            (pending, Outcome::Done(done)) => (pending, done.appended),
            (pending, Outcome::Refused(_)) => {
                never!(self.broken, "a commit without checks was refused: {pending:?}");
                (pending, Vec::<Appended>::new())
            }
        };
        match pending {
            PendingEffect::Publish { to, topic, single, durability, appends } => {
                self.appended(now, appends, &appended);
                self.published(to, topic, single, durability, &appended);
            }
            PendingEffect::Delay(delayed) => self.delayed(now, delayed, &appended),
            PendingEffect::Flush { cursor, committed, since, confirms, appends } => {
                self.note_dead_letters(&appends, &appended);
                self.appended(now, appends, &appended);
                self.flushed(cursor, committed, since);
                for to in confirms {
                    self.reply(to, Reply::Acked);
                }
            }
            PendingEffect::Seek(seek) => self.seek_durable(now, seek),
            PendingEffect::TopicWrite { to, topic, created, checked } => {
                self.topic_written(to, topic, created, checked);
            }
            PendingEffect::TopicDelete { to, topic } => self.reply(to, Reply::TopicDeleted { topic }),
            PendingEffect::GroupDelete { to, topic, group } => {
                self.reply(to, Reply::GroupDeleted { topic, group });
            }
            PendingEffect::LettersRemove { to, topic, partition } => {
                self.reply(to, Reply::LettersRemoved { topic, partition });
            }
            PendingEffect::GroupPause { to, topic, group, paused } => {
                self.reply(to, Reply::GroupPaused { topic, group, paused });
            }
            PendingEffect::MoveDue { appends, .. } => {
                self.appended(now, appends, &appended);
                self.due_moved(now);
            }
            // This engine learns of the event from the next report of appends (`foreign_appends.rs`).
            PendingEffect::MoveAlone { .. } => self.due_moved(now),
            PendingEffect::Trim { topic, partition, start } => self.trimmed(topic, partition, start),
            PendingEffect::Compact => self.compaction_durable(now, token),
            PendingEffect::Row => {}
            other @ (PendingEffect::DuplicateOnly { .. }
            | PendingEffect::Read { .. }
            | PendingEffect::Refetch { .. }
            | PendingEffect::FindStart { .. }
            | PendingEffect::ReadTopic { .. }
            | PendingEffect::SchemaCheck { .. }
            | PendingEffect::ScanDue(_)) => never!(self.broken, "a commit is the answer to {other:?}"),
        }
    }

    /// Emits a note for each dead letter, only after the commit: a letter that was not committed does not exist.
    fn note_dead_letters(&mut self, appends: &[PendingAppend], appended: &[Appended]) {
        for (appending, at) in appends.iter().zip(appended) {
            let stream = &appending.stream;
            if !stream.topic.is_dead_letter() || stream.topic.is_system() {
                continue;
            }
            let (stream, body) = (stream.clone(), appending.body.clone());
            let letter = Event { stream, offset: at.offset, ts: at.ts, id: at.id.clone(), body };
            self.note(Note::DeadLettered { letter: Arc::new(letter) });
        }
    }

    /// Handles a batch that was refused as too large. Every batch is bounded where it is made, so this is a second line
    /// of defence: waiting requests are refused, and a cursor takes back what was not written and tries again with
    /// less.
    pub(crate) fn too_large(&mut self, now: Now, token: Token, bytes: usize) {
        self.end_row_commit(token);
        // Given up when the store failed.
        let Some(pending) = self.pending.complete(token) else { return };
        match &pending {
            PendingEffect::Flush { cursor, appends, .. } => self.flush_refused(now, *cursor, appends),
            PendingEffect::MoveDue { by, .. } | PendingEffect::MoveAlone { by, .. } => {
                self.move_refused(now, *by);
            }
            _ => {}
        }
        for to in pending.into_requesters() {
            self.refuse(to, BusError::BatchTooLarge { bytes, max: BATCH_BYTES_MAX });
        }
    }

    pub(crate) fn found(&mut self, now: Now, token: Token, offsets: Option<Vec<Offset>>) {
        match self.pending.complete(token) {
            Some(PendingEffect::Seek(seek)) => self.seek_found(now, seek, offsets),
            Some(PendingEffect::FindStart { topic, partition }) => {
                if let Some(start) = offsets.and_then(|offsets| offsets.first().copied()) {
                    self.start_found(now, topic, partition, start);
                }
            }
            Some(other) => never!(self.broken, "offsets are the answer to {other:?}"),
            // Given up when the store failed.
            None => {}
        }
    }
}
