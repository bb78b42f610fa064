//! The message that a child is handling (`InProgress`): there is at most one at a time.

use millrace_kernel::{Delivery, Port};
use millrace_model::{OsFault, OsId, OsKind, OsMessage};
use serde::Deserialize;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct InProgress {
    pub(crate) delivery: Delivery,
    /// Position of the end of this message in the bytes written to the child.
    pub(crate) end: u64,
    pub(crate) ends: Ends,
    /// When the child is not waited for any longer.
    pub(crate) until: Option<Instant>,
}

/// The condition that finishes the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// An event: finished when it was written.
    Written,
    /// A suspect (see `given.rs`), an event of a durable timer during which the child may have ended before: finished
    /// by its outcome, or when a while has passed. The child is given nothing else meanwhile.
    Alone,
    /// A request: finished by its outcome, which goes to the requester.
    Outcome,
    /// An event of the bus: a reply acknowledges it, an error gives it back.
    Settled,
}

impl InProgress {
    /// `until` is for messages that must be answered, `alone_until` for an event that is given alone.
    pub(crate) fn new(
        delivery: &Delivery,
        end: u64,
        until: Option<Instant>,
        alone_until: Instant,
    ) -> InProgress {
        let message = &delivery.message;
        let ends = match message.kind {
            OsKind::Command | OsKind::Query => Ends::Outcome,
            OsKind::Event if delivery.is_bus_event() => Ends::Settled,
            _ if delivery.suspect.is_some() => Ends::Alone,
            _ => Ends::Written,
        };
        let until = match ends {
            Ends::Written => None,
            Ends::Alone => Some(alone_until),
            Ends::Outcome | Ends::Settled => until,
        };
        InProgress { delivery: delivery.clone(), end, ends, until }
    }

    pub(crate) fn id(&self) -> &OsId {
        &self.delivery.message.metadata.id
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.ends == Ends::Alone
    }

    /// An event that only the child has, and of which nobody awaits an outcome.
    pub(crate) fn is_event(&self) -> bool {
        matches!(self.ends, Ends::Written | Ends::Alone)
    }

    /// Whether this outcome is about this message.
    pub(crate) fn is_answered_by(&self, outcome: &OsMessage) -> bool {
        self.ends != Ends::Written && outcome.metadata.causation.as_ref() == Some(self.id())
    }

    pub(crate) fn finish(self, port: &Port, outcome: OsMessage) {
        let delivery = self.delivery.id;
        match (self.ends, outcome.kind) {
            (Ends::Settled | Ends::Alone, OsKind::Error) => port.done(delivery, Err(fault_of(&outcome))),
            (Ends::Settled | Ends::Alone | Ends::Written, _) => port.done(delivery, Ok(())),
            (Ends::Outcome, _) => {
                port.answer(delivery, outcome);
                port.done(delivery, Ok(()));
            }
        }
    }

    /// Ends the message with `fault`, because the child will not answer it.
    pub(crate) fn fail(self, port: &Port, fault: OsFault) {
        port.done(self.delivery.id, Err(fault));
    }

    /// Fills in causation and correlation that the child left out.
    pub(crate) fn lend(&self, message: &mut OsMessage) {
        let metadata = &mut message.metadata;
        if metadata.causation.is_none() {
            metadata.causation = Some(self.id().clone());
        }
        if metadata.correlation.is_none() && metadata.causation.as_ref() == Some(self.id()) {
            metadata.correlation.clone_from(&self.delivery.message.metadata.correlation);
        }
    }
}

pub(crate) fn fault_of(error: &OsMessage) -> OsFault {
    #[derive(Deserialize)]
    struct Data {
        code: Option<u16>,
        message: Option<String>,
    }
    let data: Option<Data> = serde_json::from_str(error.data.as_str()).ok();
    let (code, message) = data.map_or((None, None), |data| (data.code, data.message));
    OsFault::new(code.unwrap_or(500), message.unwrap_or_else(|| error.data.as_str().to_owned()))
}
