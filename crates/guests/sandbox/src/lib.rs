//! Sandboxed programs with durable state: implements the ports of `millrace_wasm::capability` with a session.
//!
//! [`SessionPort`] gives programs the store of a session: each run reads and commits in a transaction of its own.
//! [`ContextPort`] lets a run take part in the commit of a durable handler: state that the program ensures and events
//! that it emits go into that handler's [`HandlerContext`](millrace_session::HandlerContext).
//!
//! This crate runs no programs (`millrace-wasm` does) and stores nothing itself. Start with [`ContextPort`].

mod context_port;
mod guest_value;
mod request;
mod session_port;

pub use context_port::ContextPort;
pub use guest_value::GuestValue;
pub use session_port::SessionPort;
