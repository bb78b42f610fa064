//! The bus's state of each connection.

use std::collections::BTreeMap;

use millrace_model::{Actor, Group, Requester, TopicKey};

use crate::groups::group::GroupId;
use crate::interface::input::ConnId;
use crate::interface::reply::ReplyTo;
use crate::topics::totals::sharer;

/// The connections that are open. A request or an answer may name a connection that was closed meanwhile: then there is
/// nobody to serve.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    by_id: BTreeMap<ConnId, Connection>,
}

/// Names a subscription of a connection.
pub(crate) type SubscriptionKey = (TopicKey, Group);

#[derive(Debug, Default)]
pub(crate) struct Connection {
    subscriptions: BTreeMap<SubscriptionKey, GroupId>,
    /// Subscriptions that wait for their group's position to become durable, with the UNSUBSCRIBE that overtook them.
    joining: BTreeMap<SubscriptionKey, Option<ReplyTo>>,
    /// Delivery credits left. `None` until the first FLOW: until then only the members' windows bound deliveries.
    credits: Option<u64>,
    congested: bool,
    /// The party that subscribed, checked again when a topic's access lists change. `None` before the first SUBSCRIBE.
    by: Option<Requester>,
}

impl Connections {
    pub(crate) fn open(&mut self, conn: ConnId) {
        self.by_id.insert(conn, Connection::default());
    }

    pub(crate) fn close(&mut self, conn: ConnId) -> Option<Connection> {
        self.by_id.remove(&conn)
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&Connection> {
        self.by_id.get(&conn)
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.by_id.get_mut(&conn)
    }

    pub(crate) fn is_open(&self, conn: ConnId) -> bool {
        self.by_id.contains_key(&conn)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &Connection)> {
        self.by_id.iter().map(|(conn, connection)| (*conn, connection))
    }

    pub(crate) fn can_receive(&self, conn: ConnId) -> bool {
        self.get(conn).is_some_and(|connection| !connection.congested && connection.credits != Some(0))
    }

    /// Ends all subscriptions, because the engine stops.
    pub(crate) fn unsubscribe_all(&mut self) {
        self.by_id.values_mut().for_each(|connection| connection.subscriptions.clear());
    }

    /// Ends all joins. Returns the UNSUBSCRIBEs that waited for them.
    pub(crate) fn end_joins(&mut self) -> Vec<ReplyTo> {
        let joining = self.by_id.values_mut().map(|connection| std::mem::take(&mut connection.joining));
        joining.flat_map(BTreeMap::into_values).flatten().collect()
    }
}

impl Connection {
    pub(crate) fn subscription(&self, key: &SubscriptionKey) -> Option<GroupId> {
        self.subscriptions.get(key).copied()
    }

    pub(crate) fn subscription_entries(&self) -> impl Iterator<Item = (&SubscriptionKey, GroupId)> {
        self.subscriptions.iter().map(|(key, group)| (key, *group))
    }

    /// The groups that the connection is a member of.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.subscriptions.values().copied()
    }

    /// How many subscriptions there are, those included that wait for their group.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions.len() + self.joining.len()
    }

    pub(crate) fn has_subscription(&self, key: &SubscriptionKey) -> bool {
        self.subscriptions.contains_key(key) || self.joining.contains_key(key)
    }

    pub(crate) fn subscribe(&mut self, key: SubscriptionKey, group: GroupId) {
        self.subscriptions.insert(key, group);
    }

    pub(crate) fn unsubscribe(&mut self, key: &SubscriptionKey) -> Option<GroupId> {
        self.subscriptions.remove(key)
    }

    pub(crate) fn is_joining(&self, key: &SubscriptionKey) -> bool {
        self.joining.contains_key(key)
    }

    pub(crate) fn begin_join(&mut self, key: SubscriptionKey) {
        self.joining.entry(key).or_insert(None);
    }

    /// Ends a join. Returns the UNSUBSCRIBE that overtook it.
    pub(crate) fn end_join(&mut self, key: &SubscriptionKey) -> Option<ReplyTo> {
        self.joining.remove(key).flatten()
    }

    /// Lets an UNSUBSCRIBE wait for the join under way. Returns false if there is none, or one waits already.
    pub(crate) fn overtake_join(&mut self, key: &SubscriptionKey, to: ReplyTo) -> bool {
        let Some(leaving) = self.joining.get_mut(key).filter(|leaving| leaving.is_none()) else {
            return false;
        };
        *leaving = Some(to);
        true
    }

    /// Adds credits; 0 takes back those that are left.
    pub(crate) fn add_credits(&mut self, credits: u64, credits_max: u64) {
        let held = self.credits.filter(|_| credits > 0).unwrap_or(0);
        self.credits = Some(held.saturating_add(credits).min(credits_max));
    }

    pub(crate) fn spend_credit(&mut self) {
        if let Some(credits) = &mut self.credits {
            *credits = credits.saturating_sub(1);
        }
    }

    /// Delivery credits left; `None` before the first FLOW.
    pub(crate) fn credits(&self) -> Option<u64> {
        self.credits
    }

    pub(crate) fn is_congested(&self) -> bool {
        self.congested
    }

    pub(crate) fn set_congested(&mut self, congested: bool) {
        self.congested = congested;
    }

    pub(crate) fn by(&self) -> Option<&Requester> {
        self.by.as_ref()
    }

    pub(crate) fn set_by(&mut self, by: Requester) {
        self.by = Some(by);
    }

    /// The agent whose share the windows of this connection count against.
    pub(crate) fn agent(&self) -> Option<&Actor> {
        self.by.as_ref()?.principal().map(|who| &who.agent)
    }

    /// The same for groups, which count against no administrator.
    pub(crate) fn sharer(&self) -> Option<Actor> {
        self.by.as_ref().and_then(sharer)
    }
}
