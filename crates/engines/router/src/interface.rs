//! What goes into the loop and what comes out: inputs, effects, notes.

pub(crate) mod effect;
pub(crate) mod input;
pub(crate) mod note;
