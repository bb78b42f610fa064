//! Capabilities: what each declares, which messages it may take and emit, and its life cycle.

pub(crate) mod lossy_json;
pub(crate) mod manifest;
pub(crate) mod manifest_describe;
pub(crate) mod manifest_json;
pub(crate) mod schema;
pub(crate) mod schema_refs;
pub(crate) mod supervise;
pub(crate) mod table;
