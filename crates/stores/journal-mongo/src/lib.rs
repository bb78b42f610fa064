//! The journal on MongoDB: records, manifest and parts of snapshots are documents of one database.
//!
//! - A number is placed by inserting a document whose `_id` is the number. The index on `_id` is unique, so of all
//!   writers one succeeds and the others get «duplicate key».
//! - Every write waits until a majority of the members has it in its journal on disk (`w: majority, j: true`).
//! - Every read is from the primary and sees only what a majority has. An answer that must not be from the past (an empty
//!   journal, the manifest) is asked for with `linearizable` where the deployment elects its primary.
//! - Every request has a deadline, also against an engine that accepts connections and never answers. The driver has no
//!   such limit; `connection.rs` adds it. After the deadline the outcome is unknown.
//! - Nothing is repeated here. The driver's own repeats are off: after a lost answer they would turn a record that was
//!   placed into «duplicate key».
//!
//! A deleted number is free again, so the caller guards itself by the manifest (`HeadGuard::Manifest`).
//!
//! Documents, concerns, rights and refusals are listed in `docs/formats/journal-mongo.md`.
//!
//! Not in this crate: what a record holds, when to try again, and any table that people query.
//!
//! Start with [`MongoSettings`] and [`MongoJournal`]; `records.rs` is the heart.

mod binary;
mod collections;
mod connection;
mod failure;
mod fitness;
mod journal;
mod manifest;
mod observe;
mod parts;
mod plain;
mod records;
mod settings;

pub use journal::MongoJournal;
pub use plain::PlainDatabase;
pub use settings::MongoSettings;
