//! Which store a URL names, and how it is opened: the one room that knows every adapter.
//!
//! What is not here: the port (`store`), the adapters themselves, and whoever drives them. The server opens a store to
//! serve it ([`open_store`]), sessions open it beside everybody else ([`open_shared`]).
//!
//! Start with [`StoreUrl`].

mod open;
mod url;

pub use open::{OpenError, OpenedStore, open_shared, open_store, opening_waits_for};
pub use url::{StoreUrl, StoreUrlError};
