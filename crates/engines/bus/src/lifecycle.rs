//! From start to stop: restoring, effects under way, examining the rows, ending.

pub(crate) mod committed;
pub(crate) mod inspect;
pub(crate) mod outstanding;
pub(crate) mod pending;
pub(crate) mod restore;
pub(crate) mod state;
pub(crate) mod stop;
