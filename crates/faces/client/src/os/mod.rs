//! Client of the CQRS loop over its Unix socket: requests with one outcome each, and events.

mod client;
mod error;
mod link;
mod options;
mod pending;
mod place;

pub use client::OsClient;
pub use error::OsClientError;
pub use options::{OsOptions, OsRequest, default_socket};
pub use place::check_socket;
