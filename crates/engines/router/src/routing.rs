//! A message on its way: lanes, routing by kind, mailboxes, outcomes, causes.

pub(crate) mod drops;
pub(crate) mod emission_error;
pub(crate) mod emit;
pub(crate) mod events;
pub(crate) mod lanes;
pub(crate) mod lineage;
pub(crate) mod outcome;
pub(crate) mod pending;
pub(crate) mod route;
