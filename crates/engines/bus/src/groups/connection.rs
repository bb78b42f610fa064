//! The bus's state of a connection.

use std::collections::BTreeMap;

use millrace_model::{Group, TopicKey};

use crate::groups::group::GroupId;
use crate::interface::input::By;
use crate::interface::reply::ReplyTo;

#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) subscriptions: BTreeMap<(TopicKey, Group), GroupId>,
    /// Subscriptions that wait for their group's position to become durable, with the UNSUBSCRIBE that overtook them.
    pub(crate) joining: BTreeMap<(TopicKey, Group), Option<ReplyTo>>,
    /// Delivery credits left. `None` until the first FLOW: until then only the members' windows bound deliveries.
    pub(crate) credits: Option<u64>,
    pub(crate) congested: bool,
    /// The principal that subscribed, checked again when a topic's access lists change.
    pub(crate) by: By,
}

impl Connection {
    pub(crate) fn can_receive(&self) -> bool {
        !self.congested && self.credits != Some(0)
    }

    pub(crate) fn spend_credit(&mut self) {
        if let Some(credits) = &mut self.credits {
            *credits = credits.saturating_sub(1);
        }
    }
}
