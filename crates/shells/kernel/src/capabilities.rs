//! Capabilities in this process: what authors write, how their functions are run, how they are changed.

pub(crate) mod capability;
pub(crate) mod change;
pub(crate) mod context;
pub(crate) mod handlers;
pub(crate) mod manifest;
pub(crate) mod port;
