//! The JSON formats of WebSocket frames and HTTP bodies, in one place for the server, the client and the benchmarks.
//!
//! Reading turns text into checked values of `millrace-model`, or into one [`FrameError`] that says what was wrong and
//! what would be right. Payloads and headers pass through as the bytes that their author wrote: a document is split
//! into its fields once, and only the short fields are parsed further. Writing appends to a `String` that the caller
//! reuses.
//!
//! This crate has no sockets and no sessions, and decides nothing: whether a topic exists or an offset is in flight is
//! known to the engine.
//!
//! Start with [`ClientFrame::parse`] and [`ServerFrame`]; HTTP bodies are in [`http`], the schemas
//! that describe them in [`schema`], the lines of the CQRS loop in [`os`].

mod about;
mod client_frame;
mod cloud_event;
mod code;
mod envelope;
mod error;
mod event;
mod field;
mod fields;
pub mod http;
mod moved;
pub mod os;
mod position;
mod rid;
pub mod schema;
mod server_frame;
mod start;
mod text;

pub use about::About;
pub use client_frame::{
    Ack, AuthToken, BATCH_MAX, ClientFrame, ClientRequest, Flow, Nack, Publish, PublishBatch, Subscribe,
    Unsubscribe,
};
pub use cloud_event::{
    CE_PREFIX, CLOUD_EVENT, CLOUD_EVENTS, CloudEvent, parse_cloud_event, parse_cloud_events,
    write_cloud_event,
};
pub use code::ErrorCode;
pub use envelope::{Envelope, Shown, write_envelope};
pub use error::FrameError;
pub use event::write_event;
pub use moved::{LEADER_HEADER, MOVED_CLOSE_CODE, moved_close_reason};
pub use position::Position;
pub use rid::{RID_BYTES_MAX, Rid};
pub use server_frame::{
    Message, Messages, MessagesWriter, OkFrame, Published, PublishedBatch, PublishedPlace, ServerFrame,
    Subscribed, write_message, write_ok, write_pong, write_published, write_published_batch,
    write_subscribed,
};
pub use start::StartFrom;
