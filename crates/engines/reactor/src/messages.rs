//! The messages of `sys/loop@v1`: typed requests, replies and events, and the byte layout of their payloads.

mod error;
mod reply;
mod request;

pub use error::{ERROR_TRACE, RequestError};
pub use reply::{BadPollReply, EVENT_BYTES, POLL_REPLY_HEAD_BYTES, PollEvent, PollReply};
pub use request::{
    FirstDue, OP_POLL, OP_TIMER_ARM, OP_TIMER_CANCEL, OP_UNWATCH, OP_WATCH, PollTimeout, Request,
};
pub use request::{TimerId, WatchId};
