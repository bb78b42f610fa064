//! placeholder
mod binary;
mod collections;
mod connection;
mod failure;
mod fitness;
mod journal;
mod manifest;
mod observe;
mod parts;
mod records;
mod settings;

pub use journal::MongoJournal;
pub use settings::MongoSettings;
