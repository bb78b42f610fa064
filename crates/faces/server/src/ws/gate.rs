//! The check before every frame: who sends it, with which rights, and how often.

use millrace_model::{Group, TopicName, TraceId};
use millrace_wire::{About, AuthToken, ClientRequest, ErrorCode, FrameError};

use crate::access::{Caller, Scope};
use crate::ws::connection::Connection;

/// The checks of one connection. `caller` has no grant at first, unless the upgrade brought a token.
pub(super) struct Gate<'a> {
    connection: &'a Connection<'a>,
    pub(super) caller: Caller,
}

impl<'a> Gate<'a> {
    pub(super) fn new(connection: &'a Connection<'a>) -> Gate<'a> {
        Gate { connection, caller: connection.caller.clone() }
    }

    /// Checks a frame. Records refusals; the reader sends the answer.
    pub(super) fn pass(&mut self, request: &ClientRequest) -> Result<(), FrameError> {
        let passed = match request {
            ClientRequest::Ping => Ok(()),
            ClientRequest::Auth(token) => self.authenticate(token),
            request => self.admit(request),
        };
        passed.map_err(|error| {
            let topic = topic(request);
            let (about, trace) = (topic.map(TopicName::as_str), trace(request));
            let connection = self.connection;
            connection.refused(error.code, request.type_name(), &error.message, about, trace.as_ref());
            match topic {
                Some(topic) => error.about(About::topic(topic.as_str())),
                None => error,
            }
        })
    }

    /// Without tokens everybody may enter. A connection keeps its agent: a new token may only replace one of the same
    /// agent.
    fn authenticate(&mut self, token: &AuthToken) -> Result<(), FrameError> {
        self.charge(1)?;
        let tokens = &self.connection.app.edge.tokens;
        if tokens.is_open() {
            return Ok(());
        }
        let refused = |why| Err(FrameError::new(ErrorCode::Unauthorized, why));
        let grant = match tokens.find(token.secret()) {
            Ok(grant) => grant,
            Err(not_accepted) => return refused(not_accepted.as_str()),
        };
        if self.caller.agent().is_some_and(|agent| agent != grant.principal.agent.as_str()) {
            return refused("this connection belongs to another agent: open a new one");
        }
        self.connection.enter(grant.clone());
        self.caller.grant = Some(grant);
        Ok(())
    }

    fn admit(&self, request: &ClientRequest) -> Result<(), FrameError> {
        if self.connection.app.edge.tokens.is_open() {
            return self.charge(cost(request));
        }
        let Some(grant) = self.caller.grant.as_deref() else {
            // `authenticate.rs` lets nobody through without a token; this check stays in place all the same.
            return Err(FrameError::new(ErrorCode::Unauthorized, "send a token first"));
        };
        if let Some(end) = grant.ended() {
            return Err(FrameError::new(ErrorCode::Unauthorized, end.as_str()));
        }
        self.charge(cost(request))?;
        let (agent, needed) = (&grant.principal.agent, scope(request));
        let forbidden = |why: String| {
            Err(FrameError::new(ErrorCode::Forbidden, format!("the token of agent {agent} {why}")))
        };
        if !grant.has(needed) {
            return forbidden(format!("has no scope {needed}"));
        }
        let namespace = &self.connection.namespace;
        if !grant.namespaces.allows(namespace.as_str()) {
            return forbidden(format!("is not for namespace {namespace}"));
        }
        Ok(())
    }

    fn charge(&self, cost: u64) -> Result<(), FrameError> {
        if cost == 0 {
            return Ok(());
        }
        let charged = self.caller.charge(cost);
        charged.map_err(|too_soon| FrameError::new(ErrorCode::RateLimited, too_soon.to_string()))
    }
}

fn scope(request: &ClientRequest) -> Scope {
    match request {
        ClientRequest::Publish(_) | ClientRequest::PublishBatch(_) => Scope::Publish,
        _ => Scope::Subscribe,
    }
}

/// The cost of a frame for the rate. Acknowledgements and FLOW are free: refusing them would only make more work.
fn cost(request: &ClientRequest) -> u64 {
    match request {
        ClientRequest::PublishBatch(batch) => batch.events.len().max(1) as u64,
        ClientRequest::Ack(_) | ClientRequest::Nack(_) | ClientRequest::Flow(_) | ClientRequest::Ping => 0,
        ClientRequest::Publish(_)
        | ClientRequest::Subscribe(_)
        | ClientRequest::Unsubscribe(_)
        | ClientRequest::Auth(_) => 1,
    }
}

/// The trace of the event that a frame publishes; of a batch, that of its first event.
pub(super) fn trace(request: &ClientRequest) -> Option<TraceId> {
    let event = match request {
        ClientRequest::Publish(publish) => &publish.event,
        ClientRequest::PublishBatch(batch) => batch.events.first()?,
        _ => return None,
    };
    TraceId::of(event.body.headers.as_ref())
}

pub(super) fn group(request: &ClientRequest) -> Option<&Group> {
    match request {
        ClientRequest::Subscribe(subscribe) => Some(&subscribe.group),
        ClientRequest::Unsubscribe(unsubscribe) => Some(&unsubscribe.group),
        ClientRequest::Ack(ack) => Some(&ack.group),
        ClientRequest::Nack(nack) => Some(&nack.delivery.group),
        _ => None,
    }
}

pub(super) fn topic(request: &ClientRequest) -> Option<&TopicName> {
    match request {
        ClientRequest::Publish(publish) => Some(&publish.topic),
        ClientRequest::PublishBatch(batch) => Some(&batch.topic),
        ClientRequest::Subscribe(subscribe) => Some(&subscribe.topic),
        ClientRequest::Unsubscribe(unsubscribe) => Some(&unsubscribe.topic),
        ClientRequest::Ack(ack) => Some(&ack.topic),
        ClientRequest::Nack(nack) => Some(&nack.delivery.topic),
        ClientRequest::Flow(_) | ClientRequest::Ping | ClientRequest::Auth(_) => None,
    }
}
