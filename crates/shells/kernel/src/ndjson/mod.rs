//! OsMessage lines over a Unix socket (RFC 0032, section 13).
//!
//! The socket appears under its name once it accepts (`socket_path`). Each connection is one task on the loop's thread.
//! Its reader splits the input into lines and passes messages to the loop (`reader`). Its answers gather in a buffer,
//! which the loop's task writes when the lanes are empty or after some turns (`writer`). Lines that are no message are
//! answered here and never reach the loop.

mod accept;
mod edge;
mod hangup;
mod reader;
mod socket_path;
mod writer;

pub(crate) use accept::accept;
pub(crate) use edge::Edge;
pub use socket_path::{SocketFile, SocketPathError, default_path};
pub(crate) use writer::LineWriter;
