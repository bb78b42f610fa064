//! Which store a URL names, and how to open it: the only crate that knows every adapter.
//!
//! Not in this crate: the port (`store`), the adapters themselves, and the processes that use them. The server opens a
//! store to serve it ([`open_store`]); sessions open it beside all other processes ([`open_shared`]).
//!
//! Start with [`StoreUrl`].

mod open;
mod url;

pub use open::{OpenError, OpenedStore, open_shared, open_store, opening_waits_for};
pub use url::{StoreUrl, StoreUrlError};
