//! A journal on object storage: Amazon S3 and servers that speak its protocol, Google Cloud Storage, Azure Blob Storage.
//!
//! A record is an object that is created only if its key is free (`PUT` with `If-None-Match: *`), the manifest is an
//! object that is replaced only if its version is the one that was read (`If-Match`). Nothing else is asked of the
//! provider. [`ObjectJournal::check`] tries both conditions, and refuses a provider that ignores them. Keys, rights and
//! costs are in `docs/formats/journal-object.md`.
//!
//! Requests go through the crate `object_store`, with its own retries off: a request whose outcome is not known must be
//! looked at before it is repeated, and only the caller knows how. Each journal has a small runtime of its own, because
//! `object_store` is asynchronous and the port is not.
//!
//! Not in this crate: what a record holds, when to try again, and when records may be deleted (`store-journal`).
//!
//! Start with [`ObjectJournal::open`].

mod answer;
mod bucket;
mod connect;
mod environment;
mod error;
mod http;
mod journal;
mod keys;
mod notes;
mod plain;
mod probe;
mod provider;
mod read;
mod request;
mod store_url;

pub use environment::ObjectEnvironment;
pub use error::ObjectOpenError;
pub use journal::ObjectJournal;
pub use plain::PlainBucket;
pub use store_url::ObjectUrl;
