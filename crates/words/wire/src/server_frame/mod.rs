//! Frames of the server. The server writes them with the `write_*` functions, which borrow its data; clients read owned
//! values with [`ServerFrame::parse`].

mod message;
mod messages;
mod ok;
mod published;

pub use message::{Message, write_message};
pub use messages::{Messages, MessagesWriter};
pub use ok::{OkFrame, Subscribed, write_ok, write_subscribed};
pub(crate) use published::read_durability;
pub use published::{Published, PublishedBatch, PublishedPlace, write_published, write_published_batch};

use crate::about::About;
use crate::code::ErrorCode;
use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, needed};
use crate::rid::Rid;
use crate::text::push_rid;

#[derive(Clone, Debug, PartialEq)]
pub enum ServerFrame {
    Published(Published),
    PublishedBatch(PublishedBatch),
    Ok(OkFrame),
    Message(Box<Message>),
    Messages(Messages),
    Pong(Option<Rid>),
    Error(FrameError),
}

impl ServerFrame {
    /// Every `type` a server may send.
    pub const TYPES: &[&str] = &["PUBLISHED", "OK", "MESSAGE", "MESSAGES", "PONG", "ERROR"];

    pub fn parse(text: &str) -> Result<ServerFrame, FrameError> {
        let fields = FrameFields::of_document(text)?;
        let kind = needed(Field::Type, fields.text(Field::Type)?)?;
        Ok(match kind.as_ref() {
            "MESSAGE" => ServerFrame::Message(Box::new(Message::read(&fields)?)),
            "MESSAGES" => ServerFrame::Messages(Messages::read(&fields)?),
            "PUBLISHED" if fields.get(Field::Offsets).is_some() => {
                ServerFrame::PublishedBatch(PublishedBatch::read(&fields)?)
            }
            "PUBLISHED" => ServerFrame::Published(Published::read(&fields)?),
            "OK" => ServerFrame::Ok(OkFrame::read(&fields)?),
            "PONG" => ServerFrame::Pong(read_rid(&fields)),
            "ERROR" => ServerFrame::Error(read_error(&fields)?),
            other => return Err(FrameError::unknown_type(other, ServerFrame::TYPES)),
        })
    }

    pub fn write(&self, out: &mut String) {
        match self {
            ServerFrame::Published(frame) => frame.write(out),
            ServerFrame::PublishedBatch(frame) => frame.write(out),
            ServerFrame::Ok(frame) => frame.write(out),
            ServerFrame::Message(frame) => frame.write(out),
            ServerFrame::Messages(frame) => frame.write(out),
            ServerFrame::Pong(rid) => write_pong(out, rid.as_ref()),
            ServerFrame::Error(error) => error.write(out),
        }
    }
}

pub fn write_pong(out: &mut String, rid: Option<&Rid>) {
    out.push_str("{\"type\":\"PONG\"");
    push_rid(out, rid);
    out.push('}');
}

/// Reads the request id, which the server repeats as the client sent it; any other value counts as absent.
fn read_rid(fields: &FrameFields<'_>) -> Option<Rid> {
    fields.get(Field::Rid).and_then(Rid::from_raw)
}

fn read_error(fields: &FrameFields<'_>) -> Result<FrameError, FrameError> {
    let code = needed(Field::Code, fields.text(Field::Code)?)?;
    let message = fields.text(Field::Message)?.unwrap_or_default().into_owned();
    // A newer server may know more codes than this client.
    let code = ErrorCode::parse(&code).unwrap_or(ErrorCode::BadFrame);
    // A leader that is no string counts as absent: the error itself is what matters.
    let leader = fields.text(Field::Leader).ok().flatten().map(|leader| leader.as_ref().into());
    let error = FrameError { leader, ..FrameError::new(code, message) };
    Ok(error.rid(read_rid(fields)).about(About::of(fields)))
}
