//! OsMessage as NDJSON: one message per line, between the CQRS loop, its clients and child processes.
//!
//! [`LineSplitter`] splits a byte stream into lines, [`parse`] turns a line into a message or one [`OsRefusal`] that is
//! ready to be sent back, [`encode`] writes a message as one line.

mod encode;
mod lines;
mod members;
mod parse;
mod refusal;

pub use encode::encode;
pub use lines::{LINE_BYTES_MAX, Line, LineSplitter};
pub use parse::{Lenient, parse};
pub use refusal::OsRefusal;
