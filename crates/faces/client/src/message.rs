//! A message to publish.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{
    DeliverAt, EventBody, EventId, Headers, JsonText, Lineage, NewEvent, PRIORITY_DEFAULT, Priority,
};

use crate::error::ClientError;

#[derive(Clone, Debug)]
pub struct NewMessage {
    pub payload: JsonText,
    pub key: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// The same id on the same topic within the dedupe window is stored once.
    pub id: Option<EventId>,
    pub priority: Priority,
    pub deliver_at: Option<DeliverAt>,
}

impl NewMessage {
    /// Creates a message from text that is already JSON, which is sent byte for byte.
    pub fn new(payload: JsonText) -> NewMessage {
        NewMessage {
            payload,
            key: None,
            headers: BTreeMap::new(),
            id: None,
            priority: PRIORITY_DEFAULT,
            deliver_at: None,
        }
    }

    pub fn json<T: serde::Serialize>(payload: &T) -> Result<NewMessage, ClientError> {
        Ok(NewMessage::new(JsonText::from_value(payload)?))
    }

    pub fn key(self, key: impl Into<String>) -> NewMessage {
        NewMessage { key: Some(key.into()), ..self }
    }

    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> NewMessage {
        self.headers.insert(name.into(), value.into());
        self
    }

    pub fn id(self, id: &str) -> Result<NewMessage, ClientError> {
        Ok(NewMessage { id: Some(EventId::parse(id)?), ..self })
    }

    pub fn delay_ms(self, delay_ms: u64) -> NewMessage {
        NewMessage { deliver_at: Some(DeliverAt::AfterMs(delay_ms)), ..self }
    }

    pub(crate) fn into_event(self, fallback_id: Option<EventId>) -> NewEvent {
        NewEvent {
            id: self.id.or(fallback_id),
            body: Arc::new(EventBody {
                key: self.key.map(Into::into),
                headers: (!self.headers.is_empty()).then(|| Headers::from_map(&self.headers)),
                priority: self.priority,
                lineage: Lineage::default(),
                payload: self.payload,
            }),
        }
    }
}
