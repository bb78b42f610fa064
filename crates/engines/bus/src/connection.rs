//! What the bus knows of a connection.

use std::collections::BTreeMap;

use millrace_model::{Group, TopicKey};

use crate::group::GroupId;
use crate::input::By;
use crate::reply::ReplyTo;

#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) subscriptions: BTreeMap<(TopicKey, Group), GroupId>,
    /// Subscriptions that wait for their group's position to become durable, with the UNSUBSCRIBE that overtook them.
    pub(crate) joining: BTreeMap<(TopicKey, Group), Option<ReplyTo>>,
    /// `None` until the first FLOW: the windows alone decide.
    pub(crate) credits: Option<u64>,
    pub(crate) congested: bool,
    /// Who subscribed: checked again when a topic's lists change.
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
