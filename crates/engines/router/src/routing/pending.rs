//! Requests that wait for their outcome: one table for those of clients, one for those of actors and timers.

use std::collections::BTreeMap;

use millrace_model::{OsId, OsType};

use crate::interface::input::{CapabilityId, ConnId, DeliveryId};
use crate::reports::trace::Realm;
use crate::routing::lanes::Answers;
use crate::timing::deadlines::Deadline;

/// The recipient of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeTo {
    Client(ConnId),
    /// The client disconnected while its request waited for its turn: the request is carried out, its outcome is an
    /// orphan.
    Gone,
    Actor {
        capability: CapabilityId,
        wait: bool,
    },
    Timer(u64),
}

impl OutcomeTo {
    pub(crate) fn is_client(self) -> bool {
        matches!(self, OutcomeTo::Client(_) | OutcomeTo::Gone)
    }

    pub(crate) fn capability(self) -> Option<CapabilityId> {
        match self {
            OutcomeTo::Actor { capability, .. } => Some(capability),
            OutcomeTo::Client(_) | OutcomeTo::Gone | OutcomeTo::Timer(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) requester: OutcomeTo,
    pub(crate) to: CapabilityId,
    /// The generation: tells this use of the request id from others.
    pub(crate) delivery: DeliveryId,
    pub(crate) ty: OsType,
    pub(crate) correlation: Option<OsId>,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) realm: Realm,
}

/// Keyed by request id. A client and an actor may use the same id at the same time: their requests are in different
/// tables.
#[derive(Debug, Default)]
pub(crate) struct PendingTable {
    external: BTreeMap<OsId, PendingRequest>,
    internal: BTreeMap<OsId, PendingRequest>,
}

impl PendingTable {
    fn of(&self, client: bool) -> &BTreeMap<OsId, PendingRequest> {
        if client { &self.external } else { &self.internal }
    }

    fn of_mut(&mut self, client: bool) -> &mut BTreeMap<OsId, PendingRequest> {
        if client { &mut self.external } else { &mut self.internal }
    }

    pub(crate) fn contains(&self, requester: OutcomeTo, id: &OsId) -> bool {
        self.of(requester.is_client()).contains_key(id)
    }

    pub(crate) fn insert(&mut self, id: OsId, pending: PendingRequest) {
        self.of_mut(pending.requester.is_client()).insert(id, pending);
    }

    /// The pending request that `from` answers by an outcome caused by `id`.
    pub(crate) fn answered(&self, from: CapabilityId, answers: Answers, id: &OsId) -> Option<DeliveryId> {
        let meant = |pending: &&PendingRequest| {
            pending.to == from
                && match answers {
                    Answers::Exactly(delivery) => pending.delivery == delivery,
                    Answers::UpTo(last) => pending.delivery <= last,
                }
        };
        let found = [true, false].into_iter().find_map(|client| self.of(client).get(id).filter(meant));
        found.map(|pending| pending.delivery)
    }

    /// Removes the request of exactly this generation.
    pub(crate) fn remove(&mut self, id: &OsId, delivery: DeliveryId) -> Option<PendingRequest> {
        let client = [true, false]
            .into_iter()
            .find(|client| self.of(*client).get(id).is_some_and(|pending| pending.delivery == delivery))?;
        self.of_mut(client).remove(id)
    }

    pub(crate) fn get(&self, id: &OsId, client: bool) -> Option<&PendingRequest> {
        self.of(client).get(id)
    }

    /// First the clients' requests, then those of actors and timers, each in the order of their ids.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&OsId, &PendingRequest)> {
        self.external.iter().chain(self.internal.iter())
    }

    pub(crate) fn len(&self) -> usize {
        self.external.len() + self.internal.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
