//! Access control: which principals may publish to a topic, read it, or use its groups. The access lists are part of
//! the topics' settings; each request names its requester (`by`).
//!
//! Dead letters are copies of a topic's events, so a dead-letter topic without access lists of its own uses those of
//! its source topic.

use millrace_model::{
    Action, Group, Now, Op, Principal, Requester, Space, TopicAccess, TopicConfig, TopicKey, keys,
};

use crate::bus::Bus;
use crate::groups::connection::Connection;
use crate::groups::subscribe::Departure;
use crate::interface::effect::Effect;
use crate::interface::input::Request;
use crate::interface::reply::{BusError, ReplyTo};

impl Bus {
    /// Checks a request against the access lists. This table is the only place that says which requests they concern.
    /// All others are left to the token's scopes, which the edges (HTTP, WebSocket) check, or follow from a
    /// subscription that was admitted before.
    pub(crate) fn admit(&self, by: &Requester, request: &Request) -> Result<(), BusError> {
        let (action, topic) = match request {
            Request::Publish(publish) => (Action::Publish, &publish.topic),
            Request::PublishBatch(batch) => (Action::Publish, &batch.topic),
            Request::Subscribe(subscribe) => (Action::Subscribe, &subscribe.topic),
            Request::SeekGroup { topic, .. }
            | Request::DeleteGroup { topic, .. }
            | Request::PauseGroup { topic, .. }
            | Request::InspectGroup { topic, .. }
            | Request::EventStandings { topic, .. }
            | Request::ListGroups { topic }
            | Request::DescribeTopic { topic }
            | Request::Offsets { topic } => (Action::Subscribe, topic),
            Request::Record(_)
            | Request::Unsubscribe { .. }
            | Request::Ack(_)
            | Request::Nack(_)
            | Request::GiveBack(_)
            | Request::Flow { .. }
            | Request::CreateTopic { .. }
            | Request::PatchTopic { .. }
            | Request::DeleteTopic { .. }
            | Request::RemoveLetters { .. }
            | Request::ListTopics { .. }
            | Request::InspectConnections
            | Request::Stats => return Ok(()),
        };
        let exists = self.topics.contains(topic);
        let joins = matches!(request, Request::Publish(_) | Request::PublishBatch(_) | Request::Subscribe(_));
        if !joins && !exists {
            // The request itself answers that there is no such topic, whatever the lists of the source topic say.
            return Ok(());
        }
        // Deleting a group is an administrator's task: the topic's own list does not keep administrators from it.
        let looks_after = matches!(request, Request::DeleteGroup { .. })
            && by.principal().is_some_and(Principal::is_administrator);
        let listed = if looks_after { Ok(()) } else { self.permit(by, action, topic) };
        let refused = match (listed, by.principal()) {
            (Err(refused), Some(who)) if !self.may_see(who, topic) => refused,
            (Err(refused), _) => return Err(refused),
            (Ok(()), _) => {
                return match group_of(request) {
                    Some(group) => self.permit_group(by, topic, group),
                    None => Ok(()),
                };
            }
        };
        // With `auto_create` this request would have created a missing topic, so the existence of this one cannot be
        // hidden.
        Err(match joins {
            true if self.limits.auto_create => refused,
            true => refused.hidden(BusError::NoAutoCreate(topic.clone())),
            false => refused.hidden(BusError::UnknownTopic(topic.clone())),
        })
    }

    /// Whether the principal may know that the topic exists. A principal who may publish to it does, and is told the
    /// real reason of a refusal.
    fn may_see(&self, who: &Principal, topic: &TopicKey) -> bool {
        self.access(topic, |access| access.may_be_seen_by(who))
    }

    pub(crate) fn permit(&self, by: &Requester, action: Action, topic: &TopicKey) -> Result<(), BusError> {
        let Some(who) = by.principal() else { return Ok(()) };
        if self.access(topic, |access| access.permits(who, action)) {
            return Ok(());
        }
        Err(BusError::Forbidden { topic: topic.clone(), agent: who.agent.clone(), action })
    }

    /// Checks the group's own list, or the list for all groups that have none.
    fn permit_group(&self, by: &Requester, topic: &TopicKey, group: &Group) -> Result<(), BusError> {
        let Some(who) = by.principal() else { return Ok(()) };
        let is_permitted = self.access(topic, |access| {
            let lists = [access.config, access.letters_of].into_iter().flatten();
            let lists = lists.filter_map(|config| config.group_acl.as_ref()).next();
            lists.and_then(|lists| lists.list(group)).is_none_or(|list| list.permits(who))
        });
        if is_permitted {
            return Ok(());
        }
        Err(BusError::GroupForbidden { topic: topic.clone(), group: group.clone(), agent: who.agent.clone() })
    }

    /// Checks whether the principal may be a member of the group: the topic's list and the group's list must both
    /// permit it.
    pub(crate) fn permit_member(
        &self,
        by: &Requester,
        topic: &TopicKey,
        group: &Group,
    ) -> Result<(), BusError> {
        self.permit(by, Action::Subscribe, topic)?;
        self.permit_group(by, topic, group)
    }

    /// Keeps the subscriber on its connection: `evict` checks it again when access lists change.
    pub(crate) fn remember(&mut self, to: ReplyTo, by: Requester) {
        if let ReplyTo::Conn { conn, .. } = to
            && let Some(connection) = self.conns.get_mut(conn)
        {
            connection.set_by(by);
        }
    }

    /// Asks the rule of access lists about a topic, which need not exist.
    fn access<T>(&self, topic: &TopicKey, ask: impl FnOnce(TopicAccess<'_>) -> T) -> T {
        let config = |key: &TopicKey| self.topics.named(key).map(|topic| &topic.config);
        let letters_of = topic.dead_letters_of();
        ask(TopicAccess { topic, config: config(topic), letters_of: letters_of.as_ref().and_then(config) })
    }

    /// Whether the topic, or the topic whose dead letters it holds, has a list of who may read it.
    pub(crate) fn is_listed(&self, topic: &TopicKey) -> bool {
        self.access(topic, |access| access.list(Action::Subscribe).is_some())
    }

    /// Removes, and notifies, members that may no longer read the topic or use their group. Called after the topic's
    /// access lists changed.
    pub(crate) fn evict(&mut self, now: Now, topic: &TopicKey) {
        for key in std::iter::once(topic.clone()).chain(topic.dead_letters()) {
            let state = self.topics.named(&key);
            let groups: Vec<_> = state.into_iter().flat_map(|topic| topic.groups.values().copied()).collect();
            for group in groups {
                let Some(state) = self.groups.must(group, &self.broken) else { continue };
                let name = state.name.clone();
                for conn in state.members.conns().collect::<Vec<_>>() {
                    let by = self.conns.get(conn).and_then(Connection::by);
                    let Some(Err(error)) = by.map(|by| self.permit_member(by, &key, &name)) else { continue };
                    let agent = self.agent_of(conn);
                    if let Some(connection) = self.conns.get_mut(conn) {
                        connection.unsubscribe(&(key.clone(), name.clone()));
                    }
                    self.leave(now, conn, agent.as_ref(), group, Departure::Willing);
                    self.effects.push(Effect::Notice { conn, error, group: Some(name.clone()) });
                }
            }
        }
    }

    /// Copies the access lists of a deleted topic to its dead-letter topic, which stays and must not become readable
    /// for everybody.
    pub(crate) fn leave_lists_to_dead_letters(
        &mut self,
        topic: &TopicKey,
        config: &TopicConfig,
        ops: &mut Vec<Op>,
    ) {
        let Some(key) = topic.dead_letters().filter(|_| config.has_access()) else { return };
        let Some(letters) = self.topics.named_mut(&key) else { return };
        let lists = &mut letters.config;
        lists.publish_acl = lists.publish_acl.take().or_else(|| config.publish_acl.clone());
        lists.subscribe_acl = lists.subscribe_acl.take().or_else(|| config.subscribe_acl.clone());
        lists.group_acl = lists.group_acl.take().or_else(|| config.group_acl.clone());
        ops.push(Op::Put { space: Space::Topics, key: keys::topic(&key), value: letters.row().encode() });
    }
}

/// Returns the group that a request joins, moves or deletes.
fn group_of(request: &Request) -> Option<&Group> {
    match request {
        Request::Subscribe(subscribe) => Some(&subscribe.group),
        Request::SeekGroup { group, .. }
        | Request::DeleteGroup { group, .. }
        | Request::PauseGroup { group, .. } => Some(group),
        _ => None,
    }
}
