//! Who makes a request: the connection it came over and the token it brought.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use millrace_bus::By;
use millrace_wire::ErrorCode;

use crate::access::{Grant, Meter, Rate, Scope, TooSoon};
use crate::refusal::Refusal;

/// The other end of a connection, and what it may ask per second.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    meter: Arc<Meter>,
}

impl Peer {
    pub(crate) fn new(addr: SocketAddr, rate: Rate) -> Peer {
        Peer { addr, meter: Arc::new(Meter::new(rate)) }
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

    /// From both buckets: for what turned out to be more than one request.
    pub(crate) fn charge(&self, cost: u64) -> Result<(), TooSoon> {
        self.charge_connection(cost)?;
        self.charge_token(cost)
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
