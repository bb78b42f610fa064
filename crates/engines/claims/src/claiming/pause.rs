//! Pausing one handler: nothing is claimed or started for it, everything else goes on. Its events wait in the log, and
//! retention keeps them, because the handler's position in the log does not move.

use bytes::Bytes;
use millrace_model::{HandlerRow, Now, keys};

use crate::interface::effect::Note;
use crate::worker::Worker;

impl Worker {
    /// Reads the rows of the handlers: somebody may have paused or resumed one from outside.
    pub(crate) fn on_handler_rows(&mut self, now: Now, rows: &[(String, Bytes)]) {
        for at in self.handlers.indices() {
            let key = keys::handler(&self.identity.namespace, self.handlers[at].id());
            let row = rows.iter().find(|(found, _)| *found == key);
            let row = row.and_then(|(key, value)| HandlerRow::decode(key, value).ok());
            self.pause_from_outside(now, at, row.is_some_and(|row| row.paused));
        }
    }

    fn pause_from_outside(&mut self, now: Now, at: usize, paused: bool) {
        let Some(paused) = self.handlers[at].set_paused_outside(paused) else { return };
        self.requests.note(Note::Paused { handler: at, paused });
        match paused {
            true => self.give_queue_back(now, at),
            false => self.handlers[at].want_claim(),
        }
    }
}
