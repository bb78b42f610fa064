//! Durable handlers: claims, their rows, state, delayed events.

pub(crate) mod claim;
pub(crate) mod due;
pub(crate) mod handler_keys;
pub(crate) mod handler_record;
pub(crate) mod state;
