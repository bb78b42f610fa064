//! The files of a store: which they are, whose they are, and whether they still have their names.

pub(crate) mod file_error;
pub(crate) mod folder;
pub(crate) mod leftovers;
pub(crate) mod names;
pub(crate) mod private;
pub(crate) mod real_path;
pub(crate) mod retire;
