//! The origin of a request: the connection that it came over and the token that it brought.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use millrace_model::Requester;
use millrace_wire::ErrorCode;

use crate::access::{Grant, Meter, PresentedNames, Rate, Scope, TooSoon};
use crate::fairness::{CallerKey, ConnectionPlace};
use crate::refusal::Refusal;

/// The other end of a connection: its address, the names of its client certificate, and its rate limit.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    pub(crate) place: Arc<ConnectionPlace>,
    pub(crate) certificate: PresentedNames,
    meter: Arc<Meter>,
}

impl Peer {
    pub(crate) fn new(
        addr: SocketAddr,
        certificate: PresentedNames,
        place: Arc<ConnectionPlace>,
        rate: Rate,
    ) -> Peer {
        Peer { addr, place, certificate, meter: Arc::new(Meter::new(rate)) }
    }
}

/// The identity behind a request. A caller without a grant is anonymous: it may do everything if no tokens are
/// configured, and nothing otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    pub(crate) grant: Option<Arc<Grant>>,
}

impl Caller {
    pub(crate) fn agent(&self) -> Option<&str> {
        self.grant.as_deref().map(|grant| grant.principal.agent.as_str())
    }

    /// The key that the caller's connections and memory are accounted under.
    pub(crate) fn key(&self) -> CallerKey {
        match self.grant.as_deref() {
            Some(grant) => CallerKey::Agent(grant.principal.agent.clone()),
            None => CallerKey::of_address(self.peer.addr.ip()),
        }
    }

    /// The identity for the engine, which checks it against the topic's access lists.
    pub(crate) fn by(&self) -> Requester {
        match self.grant.as_deref() {
            Some(grant) => Requester::Agent(grant.principal.clone()),
            None => Requester::Trusted,
        }
    }

    /// The same, but trusted for an administrator: used to look after topics, which access lists do not hide from those
    /// who write the lists. Never for content, which the lists keep from administrators, too: see
    /// `http/topic_access.rs`.
    pub(crate) fn by_unless_admin(&self) -> Requester {
        match self.grant.as_deref() {
            Some(grant) if grant.has(Scope::Admin) => Requester::Trusted,
            _ => self.by(),
        }
    }

    /// Whether the caller may look, but not at payloads, keys and header values.
    pub(crate) fn is_withheld(&self) -> bool {
        self.grant.as_deref().is_some_and(|grant| !grant.has(Scope::Subscribe))
    }

    pub(crate) fn charge_connection(&self, cost: u64) -> Result<(), TooSoon> {
        self.peer.meter.spend(cost)
    }

    pub(crate) fn charge_token(&self, cost: u64) -> Result<(), TooSoon> {
        self.grant.as_deref().map_or(Ok(()), |grant| grant.meter.spend(cost))
    }

    /// Charges both rates, the connection's and the token's, or none of them.
    pub(crate) fn charge(&self, cost: u64) -> Result<(), TooSoon> {
        self.charge_more(0, cost)
    }

    /// The same for a request that paid `paid` at the gate (`gate.rs`) and turned out to cost `cost` more.
    pub(crate) fn charge_more(&self, paid: u64, cost: u64) -> Result<(), TooSoon> {
        self.peer.meter.spend_more(paid, cost)?;
        let Some(grant) = self.grant.as_deref() else { return Ok(()) };
        grant.meter.spend_more(paid, cost).inspect_err(|_| self.peer.meter.give_back(cost))
    }

    /// Charges for an array of events. The gate has charged for one of them already.
    pub(crate) fn charge_rest(&self, events: usize) -> Result<(), TooSoon> {
        self.charge_more(1, events.saturating_sub(1) as u64)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Refusal> {
        // A route that was not put behind the gate (`gate.rs`) refuses every request.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Refusal::new(ErrorCode::Unauthorized, "the request was not checked"))
    }
}
