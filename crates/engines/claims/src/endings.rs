//! How an event ends for a handler: acknowledged, retried, repeated because of a conflict, snoozed, discarded, given up.

pub(crate) mod ack;
pub(crate) mod conflict;
pub(crate) mod finished;
pub(crate) mod give_up;
pub(crate) mod outcome;
pub(crate) mod retry;
