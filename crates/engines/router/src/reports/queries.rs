//! Read-only queries of the shell between two turns.

use std::sync::Arc;

use millrace_model::OsId;

use crate::interface::input::{CapabilityId, DeliveryId};
use crate::router::Router;
use crate::routing::pending::OutcomeTo;

/// Whether a capability would take one more event of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Now,
    /// The capability is unhealthy, or its mailbox is full.
    NotNow,
    /// The capability is gone or leaving.
    Never,
}

impl Router {
    pub fn takes(&self, capability: CapabilityId) -> Takes {
        match self.table.get(capability) {
            None => Takes::Never,
            Some(one) if one.retiring => Takes::Never,
            Some(one) if one.unhealthy.is_some() || one.waiting >= self.limits.mailbox_max => Takes::NotNow,
            Some(_) => Takes::Now,
        }
    }

    pub fn is_unhealthy(&self, capability: CapabilityId) -> bool {
        self.table.get(capability).is_some_and(|one| one.unhealthy.is_some())
    }

    /// The capability that emitted a request which is still pending; `None` for a request of a client or a timer.
    pub fn asker(&self, request: &OsId, delivery: DeliveryId) -> Option<(CapabilityId, Arc<str>)> {
        let pending = self.pending.get(request, false).filter(|pending| pending.delivery == delivery)?;
        match pending.requester {
            OutcomeTo::Actor { capability, .. } => Some((capability, self.table.name_of(capability))),
            OutcomeTo::Client(_) | OutcomeTo::Gone | OutcomeTo::Timer(_) => None,
        }
    }
}
