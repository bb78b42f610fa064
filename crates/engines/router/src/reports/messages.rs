//! Messages that the loop creates itself: errors that answer requests, replies to its own commands, events about
//! itself.

use millrace_model::{
    EventId, JsonText, Now, OsFault, OsId, OsKind, OsMessage, OsMetadata, OsType, Timestamp,
};

/// Draws ids: a function of the nonce, the time and the number of ids drawn so far.
#[derive(Debug)]
pub(crate) struct Ids {
    nonce: u64,
    drawn: u64,
}

impl Ids {
    pub(crate) fn new(nonce: u64) -> Ids {
        Ids { nonce, drawn: 0 }
    }

    pub(crate) fn draw(&mut self, at: Timestamp) -> OsId {
        self.drawn += 1;
        let nonce = self.nonce.wrapping_add(self.drawn >> 32);
        OsId::of_event(&EventId::mint(at, nonce, self.drawn as u32))
    }
}

/// The fields of a request that its outcome needs.
#[derive(Clone, Debug)]
pub(crate) struct RequestRef {
    pub(crate) id: OsId,
    pub(crate) ty: OsType,
    pub(crate) correlation: Option<OsId>,
}

impl RequestRef {
    pub(crate) fn of(message: &OsMessage) -> RequestRef {
        RequestRef {
            id: message.metadata.id.clone(),
            ty: message.ty.clone(),
            correlation: message.metadata.correlation.clone(),
        }
    }
}

pub(crate) fn outcome(
    ids: &mut Ids,
    now: Now,
    asked: &RequestRef,
    kind: OsKind,
    data: JsonText,
) -> OsMessage {
    OsMessage {
        kind,
        ty: asked.ty.clone(),
        data,
        metadata: OsMetadata {
            id: ids.draw(now.wall),
            timestamp: now.wall,
            correlation: asked.correlation.clone(),
            causation: Some(asked.id.clone()),
            other: None,
        },
    }
}

pub(crate) fn error(ids: &mut Ids, now: Now, asked: &RequestRef, fault: &OsFault) -> OsMessage {
    outcome(ids, now, asked, OsKind::Error, fault.data())
}

/// `value` must be of maps of strings and numbers, which always serialise.
pub(crate) fn json(value: &serde_json::Value) -> JsonText {
    JsonText::from_stored(value.to_string().into())
}
