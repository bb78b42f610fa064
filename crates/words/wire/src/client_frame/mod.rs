//! Frames of a client: one JSON object per frame, distinguished by `type`.

mod ack;
mod publish;
mod session;
mod subscribe;

pub use ack::{Ack, Nack};
pub(crate) use publish::read_events;
pub use publish::{Publish, PublishBatch};
pub use session::{AuthToken, Flow};
pub(crate) use subscribe::read_ack_mode;
pub use subscribe::{BATCH_MAX, Subscribe, Unsubscribe};

use crate::about::About;
use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, needed};
use crate::rid::Rid;
use crate::text::push_rid;

#[derive(Clone, Debug, PartialEq)]
pub struct ClientFrame {
    pub rid: Option<Rid>,
    pub request: ClientRequest,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClientRequest {
    Publish(Publish),
    PublishBatch(PublishBatch),
    Subscribe(Subscribe),
    Unsubscribe(Unsubscribe),
    Ack(Ack),
    Nack(Nack),
    Flow(Flow),
    Ping,
    Auth(AuthToken),
}

impl ClientFrame {
    /// Parses a frame. The error carries the request id and the topic, group, partition and offset of the frame, as far
    /// as they can be read.
    pub fn parse(text: &str) -> Result<ClientFrame, FrameError> {
        let fields = FrameFields::of_document(text)?;
        let rid = match fields.get(Field::Rid) {
            None => None,
            Some(raw) => Some(
                Rid::from_raw(raw)
                    .ok_or_else(|| FrameError::wrong(Field::Rid, raw).about(About::of(&fields)))?,
            ),
        };
        match ClientRequest::read(&fields) {
            Ok(request) => Ok(ClientFrame { rid, request }),
            Err(error) => Err(error.rid(rid).about(About::of(&fields))),
        }
    }

    pub fn write(&self, out: &mut String) {
        out.push_str("{\"type\":\"");
        out.push_str(self.request.type_name());
        out.push('"');
        push_rid(out, self.rid.as_ref());
        match &self.request {
            ClientRequest::Publish(publish) => publish.push(out),
            ClientRequest::PublishBatch(batch) => batch.push(out),
            ClientRequest::Subscribe(subscribe) => subscribe.push(out),
            ClientRequest::Unsubscribe(unsubscribe) => unsubscribe.push(out),
            ClientRequest::Ack(ack) => ack.push(out),
            ClientRequest::Nack(nack) => nack.push(out),
            ClientRequest::Flow(flow) => flow.push(out),
            ClientRequest::Ping => {}
            ClientRequest::Auth(token) => token.push(out),
        }
        out.push('}');
    }
}

impl ClientRequest {
    /// Every `type` a client may send.
    pub const TYPES: &[&str] =
        &["PUBLISH", "PUBLISH_BATCH", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "FLOW", "PING", "AUTH"];

    fn read(fields: &FrameFields<'_>) -> Result<ClientRequest, FrameError> {
        let kind = needed(Field::Type, fields.text(Field::Type)?)?;
        Ok(match kind.as_ref() {
            "PUBLISH" => ClientRequest::Publish(Publish::read(fields)?),
            "PUBLISH_BATCH" => ClientRequest::PublishBatch(PublishBatch::read(fields)?),
            "SUBSCRIBE" => ClientRequest::Subscribe(Subscribe::read(fields)?),
            "UNSUBSCRIBE" => ClientRequest::Unsubscribe(Unsubscribe::read(fields)?),
            "ACK" => ClientRequest::Ack(Ack::read(fields)?),
            "NACK" => ClientRequest::Nack(Nack::read(fields)?),
            "FLOW" => ClientRequest::Flow(Flow::read(fields)?),
            "PING" => ClientRequest::Ping,
            "AUTH" => ClientRequest::Auth(AuthToken::read(fields)?),
            other => return Err(FrameError::unknown_type(other, ClientRequest::TYPES)),
        })
    }

    /// Returns the `type` of the frame, which is also the `op` of the OK that answers it.
    pub fn type_name(&self) -> &'static str {
        match self {
            ClientRequest::Publish(_) => "PUBLISH",
            ClientRequest::PublishBatch(_) => "PUBLISH_BATCH",
            ClientRequest::Subscribe(_) => "SUBSCRIBE",
            ClientRequest::Unsubscribe(_) => "UNSUBSCRIBE",
            ClientRequest::Ack(_) => "ACK",
            ClientRequest::Nack(_) => "NACK",
            ClientRequest::Flow(_) => "FLOW",
            ClientRequest::Ping => "PING",
            ClientRequest::Auth(_) => "AUTH",
        }
    }
}
