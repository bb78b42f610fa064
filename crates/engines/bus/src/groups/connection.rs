//! The bus's state of a connection.

use std::collections::BTreeMap;

use millrace_model::{Actor, Group, Requester, TopicKey};

use crate::groups::group::GroupId;
use crate::interface::reply::ReplyTo;
use crate::topics::totals::sharer;

#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) subscriptions: BTreeMap<(TopicKey, Group), GroupId>,
    /// Subscriptions that wait for their group's position to become durable, with the UNSUBSCRIBE that overtook them.
    pub(crate) joining: BTreeMap<(TopicKey, Group), Option<ReplyTo>>,
    /// Delivery credits left. `None` until the first FLOW: until then only the members' windows bound deliveries.
    pub(crate) credits: Option<u64>,
    pub(crate) congested: bool,
    /// The party that subscribed, checked again when a topic's access lists change. `None` before the first SUBSCRIBE.
    pub(crate) by: Option<Requester>,
}

impl Connection {
    /// The agent whose share the windows of this connection count against.
    pub(crate) fn agent(&self) -> Option<&Actor> {
        self.by.as_ref()?.principal().map(|who| &who.agent)
    }

    /// The same for groups, which count against no administrator.
    pub(crate) fn sharer(&self) -> Option<Actor> {
        self.by.as_ref().and_then(sharer)
    }

    pub(crate) fn can_receive(&self) -> bool {
        !self.congested && self.credits != Some(0)
    }

    pub(crate) fn spend_credit(&mut self) {
        if let Some(credits) = &mut self.credits {
            *credits = credits.saturating_sub(1);
        }
    }
}
