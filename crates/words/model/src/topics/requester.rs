//! On whose behalf a request is made.

use std::sync::Arc;

use crate::topics::access::Principal;

/// The party that a request is made for. There is no default and no `None`: an edge that does not say who asks does not
/// compile, instead of asking with all rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// The server itself, a capability that acts as itself, or everybody while no tokens are configured: no access list
    /// applies.
    Trusted,
    /// A client, with the identity that the edge has authenticated.
    Agent(Arc<Principal>),
}

impl Requester {
    /// Returns the principal to whom access lists, shares and namespaces apply; `None` for a trusted requester.
    pub fn principal(&self) -> Option<&Principal> {
        match self {
            Requester::Trusted => None,
            Requester::Agent(principal) => Some(principal),
        }
    }
}
