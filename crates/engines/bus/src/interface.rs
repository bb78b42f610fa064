//! The interface of the bus: inputs, effects, replies, notes.

pub(crate) mod effect;
pub(crate) mod input;
pub(crate) mod note;
pub(crate) mod reply;
