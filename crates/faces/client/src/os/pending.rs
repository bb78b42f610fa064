//! Requests that wait for their outcome.

use std::collections::HashMap;

use millrace_model::{OsFault, OsId, OsKind, OsMessage};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::os::error::OsClientError;

pub(super) type Outcome = Result<OsMessage, OsClientError>;

#[derive(Debug, Default)]
pub(super) struct OsRequests {
    table: Mutex<OsRequestTable>,
}

#[derive(Debug, Default)]
struct OsRequestTable {
    waiting: HashMap<OsId, oneshot::Sender<Outcome>>,
    /// Why no more requests are accepted.
    ended: Option<OsClientError>,
}

impl OsRequests {
    pub(super) fn add(&self, id: &OsId) -> Result<oneshot::Receiver<Outcome>, OsClientError> {
        let mut table = self.table.lock();
        if let Some(error) = &table.ended {
            return Err(error.clone());
        }
        let (sender, receiver) = oneshot::channel();
        table.waiting.insert(id.clone(), sender);
        Ok(receiver)
    }

    pub(super) fn forget(&self, id: &OsId) {
        self.table.lock().waiting.remove(id);
    }

    /// Passes an outcome to the request that waits for it; returns the message if no request does.
    pub(super) fn settle(&self, message: OsMessage) -> Option<OsMessage> {
        let waiting = match &message.metadata.causation {
            Some(causation) if message.kind.is_outcome() => self.table.lock().waiting.remove(causation),
            _ => None,
        };
        let Some(waiting) = waiting else { return Some(message) };
        let outcome = match message.kind {
            OsKind::Error => Err(OsClientError::Refused(fault_of(&message))),
            _ => Ok(message),
        };
        // The requester may have stopped waiting just now.
        drop(waiting.send(outcome));
        None
    }

    /// Refuses new requests; those that wait may still get their outcomes.
    pub(super) fn refuse_more(&self, error: OsClientError) {
        self.table.lock().ended = Some(error);
    }

    pub(super) fn close(&self, error: &OsClientError) {
        let waiting = {
            let mut table = self.table.lock();
            table.ended = Some(error.clone());
            std::mem::take(&mut table.waiting)
        };
        for waiting in waiting.into_values() {
            drop(waiting.send(Err(error.clone())));
        }
    }

    pub(super) fn ended(&self) -> OsClientError {
        self.table.lock().ended.clone().unwrap_or(OsClientError::Closed)
    }
}

/// Returns the fault in an error's data, which may hold anything that a capability put there.
pub(super) fn fault_of(message: &OsMessage) -> OsFault {
    #[derive(serde::Deserialize)]
    struct FaultData {
        code: u16,
        message: String,
    }
    match serde_json::from_str::<FaultData>(message.data.as_str()) {
        Ok(data) => OsFault::new(data.code, data.message),
        Err(_) => OsFault::new(500, message.data.as_str()),
    }
}
