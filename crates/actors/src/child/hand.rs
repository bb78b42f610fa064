//! The one message a child has in its hands.

use millrace_model::{OsFault, OsId, OsKind, OsMessage};
use millrace_router::DeliveryId;
use serde::Deserialize;
use tokio::time::Instant;

use crate::builtin::BUS_MESSAGE;
use crate::port::{Delivery, Port};

#[derive(Debug)]
pub(super) struct Hand {
    pub(super) delivery: DeliveryId,
    pub(super) id: OsId,
    pub(super) correlation: Option<OsId>,
    pub(super) ends: Ends,
    /// When it is given up.
    pub(super) until: Option<Instant>,
}

/// What finishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// An event: that it was written.
    Written,
    /// A request: its outcome, which goes to whoever asked.
    Outcome,
    /// An event of the bus: a reply acknowledges it, an error gives it back.
    Settled,
}

impl Hand {
    pub(super) fn take(delivery: &Delivery, until: Option<Instant>) -> Hand {
        let message = &delivery.message;
        let ends = match message.kind {
            OsKind::Command | OsKind::Query => Ends::Outcome,
            OsKind::Event if message.ty.as_str() == BUS_MESSAGE => Ends::Settled,
            _ => Ends::Written,
        };
        Hand {
            delivery: delivery.id,
            id: message.metadata.id.clone(),
            correlation: message.metadata.correlation.clone(),
            ends,
            until: until.filter(|_| ends != Ends::Written),
        }
    }

    /// Whether this outcome is about it.
    pub(super) fn is_answered_by(&self, outcome: &OsMessage) -> bool {
        self.ends != Ends::Written && outcome.metadata.causation.as_ref() == Some(&self.id)
    }

    pub(super) fn finish(self, port: &Port, outcome: OsMessage) {
        match (self.ends, outcome.kind) {
            (Ends::Settled, OsKind::Error) => port.done(self.delivery, Err(fault_of(&outcome))),
            (Ends::Settled | Ends::Written, _) => port.done(self.delivery, Ok(())),
            (Ends::Outcome, _) => {
                port.answer(self.delivery, outcome);
                port.done(self.delivery, Ok(()));
            }
        }
    }

    /// The child will not answer it, or not in time.
    pub(super) fn fail(self, port: &Port, fault: OsFault) {
        port.done(self.delivery, Err(fault));
    }

    /// Lineage that the child left out.
    pub(super) fn lend(&self, message: &mut OsMessage) {
        let metadata = &mut message.metadata;
        if metadata.causation.is_none() {
            metadata.causation = Some(self.id.clone());
        }
        if metadata.correlation.is_none() && metadata.causation.as_ref() == Some(&self.id) {
            metadata.correlation = self.correlation.clone();
        }
    }
}

fn fault_of(error: &OsMessage) -> OsFault {
    #[derive(Deserialize)]
    struct Data {
        code: Option<u16>,
        message: Option<String>,
    }
    let data: Option<Data> = serde_json::from_str(error.data.as_str()).ok();
    let (code, message) = data.map_or((None, None), |data| (data.code, data.message));
    OsFault::new(code.unwrap_or(500), message.unwrap_or_else(|| error.data.as_str().to_owned()))
}
