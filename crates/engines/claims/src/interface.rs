//! Inputs, effects, settings and errors: everything that the shell and users of a worker see.

pub(crate) mod config;
pub(crate) mod effect;
pub(crate) mod error;
pub(crate) mod input;
pub(crate) mod settings;
pub(crate) mod spec;
