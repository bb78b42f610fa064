//! Lines that a child writes to its stdout: parsed, matched with the message in progress, passed on to the loop.

use millrace_model::{OsFault, OsKind, OsMessage};
use millrace_wire::os::{Lenient, Line, LineSplitter, OsRefusal, parse};

use super::ChildRun;
use crate::in_progress::Ends;

impl ChildRun<'_> {
    pub(super) async fn hear(&mut self, mut input: &[u8]) {
        // Taken out of `self`, because a line borrows from the splitter while the rest of the struct changes.
        let mut splitter = std::mem::replace(&mut self.splitter, LineSplitter::new(0));
        while let Some(line) = splitter.next(&mut input) {
            let said = self.read(line);
            self.said(said).await;
        }
        self.splitter = splitter;
    }

    /// Handles a last line without LF. Such a line counts if it is a message; otherwise it was cut short.
    pub(super) async fn last_line(&mut self) {
        let mut splitter = std::mem::replace(&mut self.splitter, LineSplitter::new(0));
        let said = splitter.finish().and_then(|line| self.read(line).ok());
        if let Some(message) = said {
            self.said(Ok(message)).await;
        }
    }

    fn read(&self, line: Line<'_>) -> Result<OsMessage, OsFault> {
        let Line::Whole(line) = line else {
            return Err(OsFault::new(413, OsRefusal::too_long(self.limits.line_bytes_max).message));
        };
        let (id, timestamp) = self.port.kernel().stamp();
        let lenient = Lenient { id: &|| id.clone(), timestamp };
        parse(line, Some(lenient)).map_err(|refusal| {
            let name = self.port.name();
            OsFault::new(500, format!("Capability '{name}' said what is no message: {}", refusal.message))
        })
    }

    async fn said(&mut self, said: Result<OsMessage, OsFault>) {
        let mut message = match said {
            Ok(message) => message,
            Err(fault) => return self.bad(fault),
        };
        match message.kind {
            OsKind::Reply | OsKind::Error => {
                match self.in_progress.take_if(|in_progress| in_progress.is_answered_by(&message)) {
                    Some(in_progress) => {
                        self.answered = true;
                        self.given.answered(self.port, in_progress.end);
                        if in_progress.is_alone() {
                            self.given.replied(&in_progress.delivery.message.ty);
                        }
                        in_progress.finish(self.port, message);
                    }
                    None if self.given.is_answered_by(self.port, &message) => {}
                    None if message.kind == OsKind::Reply && message.metadata.causation.is_none() => {
                        let (name, ty) = (self.port.name(), &message.ty);
                        let why =
                            format!("Capability '{name}' emitted a reply {ty} without metadata.causation");
                        self.bad(OsFault::new(500, why));
                    }
                    None => self.port.emit(None, message, false).await,
                }
            }
            OsKind::Event | OsKind::Command | OsKind::Query => {
                let during = self.in_progress.as_ref().map(|in_progress| {
                    in_progress.lend(&mut message);
                    in_progress.delivery.id
                });
                let is_request = message.kind.is_request();
                if is_request {
                    *self.asked.entry(message.metadata.id.clone()).or_default() += 1;
                }
                self.port.emit(during, message, is_request).await;
            }
        }
    }

    /// Answers the request in progress with the fault. The child is not asked again.
    fn bad(&mut self, fault: OsFault) {
        self.port
            .bad_emit(self.in_progress.as_ref().map(|in_progress| in_progress.delivery.id), fault.clone());
        match self.in_progress.take_if(|in_progress| !in_progress.is_event()) {
            // `bad_emit` has answered the request.
            Some(in_progress) if in_progress.ends == Ends::Outcome => {
                self.port.done(in_progress.delivery.id, Ok(()));
            }
            Some(in_progress) => in_progress.fail(self.port, fault),
            None => {}
        }
    }
}
