//! Sandboxed programs beside durable state (feature `wasm`): what implements the ports of `millrace_wasm::capability`.
//!
//! [`SessionPort`] gives programs the store of a session: each run reads and commits in a transaction of its own.
//! [`ContextPort`] lets a run take part in the commit of a durable handler: what the program ensures and emits goes into
//! that handler's [`HandlerContext`](crate::HandlerContext).

mod context_port;
mod guest_value;
mod request;
mod session_port;

pub use context_port::ContextPort;
pub use guest_value::GuestValue;
pub use session_port::SessionPort;
