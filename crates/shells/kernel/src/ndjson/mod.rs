//! OsMessage lines over a Unix socket (RFC 0032, section 13).
//!
//! The socket appears under its name once it accepts (`place`). Each connection is one task on the loop's thread: its
//! reader cuts lines and tells the loop (`reader`), its answers gather in a buffer that the loop's task writes when it
//! has nothing better to do (`wire`). Lines that are no message are answered here and never reach the loop.

mod accept;
mod edge;
mod hangup;
mod place;
mod reader;
mod wire;

pub(crate) use accept::accept;
pub(crate) use edge::Edge;
pub use place::{PlaceError, SocketPlace, default_path};
pub(crate) use wire::Wire;
