//! The interface of the loop: inputs, effects, notes.

pub(crate) mod effect;
pub(crate) mod input;
pub(crate) mod note;
