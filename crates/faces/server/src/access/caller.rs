//! Who makes a request: the connection it came over and the token it brought.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use millrace_bus::By;
use millrace_wire::ErrorCode;

use crate::access::{Grant, Meter, PresentedNames, Rate, Scope, TooSoon};
use crate::crowd::{CallerKey, Place};
use crate::refusal::Refusal;

/// The other end of a connection: its address, the certificate it showed, and what it may ask per second.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    pub(crate) place: Arc<Place>,
    pub(crate) certificate: PresentedNames,
    meter: Arc<Meter>,
}

impl Peer {
    pub(crate) fn new(addr: SocketAddr, certificate: PresentedNames, place: Arc<Place>, rate: Rate) -> Peer {
        Peer { addr, place, certificate, meter: Arc::new(Meter::new(rate)) }
    }
}

/// Without a grant: nobody in particular, who may do everything if no tokens are configured and nothing otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    pub(crate) grant: Option<Arc<Grant>>,
}

impl Caller {
    pub(crate) fn agent(&self) -> Option<&str> {
        self.grant.as_deref().map(|grant| grant.principal.agent.as_str())
    }

    /// To whom its connections and its room in memory are accounted.
    pub(crate) fn key(&self) -> CallerKey {
        match self.grant.as_deref() {
            Some(grant) => CallerKey::Agent(grant.principal.agent.clone()),
            None => CallerKey::of_address(self.peer.addr.ip()),
        }
    }

    /// For the engine, which checks the topic's lists against it.
    pub(crate) fn by(&self) -> By {
        self.grant.as_deref().map(|grant| grant.principal.clone())
    }

    /// For looking after topics: lists do not hide a topic from those who write the lists.
    pub(crate) fn by_unless_admin(&self) -> By {
        self.by().filter(|_| !self.grant.as_deref().is_some_and(|grant| grant.has(Scope::Admin)))
    }

    pub(crate) fn charge_connection(&self, cost: u64) -> Result<(), TooSoon> {
        self.peer.meter.take(cost)
    }

    pub(crate) fn charge_token(&self, cost: u64) -> Result<(), TooSoon> {
        self.grant.as_deref().map_or(Ok(()), |grant| grant.meter.take(cost))
    }

    /// From both buckets or from none.
    pub(crate) fn charge(&self, cost: u64) -> Result<(), TooSoon> {
        self.charge_more(0, cost)
    }

    /// The same for a request that paid `paid` at the gate and turned out to be more.
    pub(crate) fn charge_more(&self, paid: u64, cost: u64) -> Result<(), TooSoon> {
        self.peer.meter.take_more(paid, cost)?;
        let Some(grant) = self.grant.as_deref() else { return Ok(()) };
        grant.meter.take_more(paid, cost).inspect_err(|_| self.peer.meter.give_back(cost))
    }

    /// For an array of events, of which the gate has taken one already.
    pub(crate) fn charge_rest(&self, events: usize) -> Result<(), TooSoon> {
        self.charge_more(1, events.saturating_sub(1) as u64)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Refusal> {
        // A route the gate does not stand before must stay shut.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Refusal::new(ErrorCode::Unauthorized, "the request was not checked"))
    }
}
