//! Entities and relations over the store port: reading, schemas, migration.

mod error;

pub use error::StateError;
