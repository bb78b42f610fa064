//! The subscriptions of a client. They outlive connections: on each new connection all of them are requested again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_model::{Group, TopicName};
use millrace_wire::{ErrorCode, FrameError, Message, OkFrame, Position, Subscribe};

use crate::command::Reply;
use crate::error::ClientError;
use crate::message_queue::MessageQueue;

pub(crate) type Key = (TopicName, Group);

#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    entries: BTreeMap<Key, SubscriptionEntry>,
    /// Messages of one subscription that were not handed over yet.
    arrived: VecDeque<Box<Message>>,
}

#[derive(Debug)]
struct SubscriptionEntry {
    subscribe: Subscribe,
    queue: Arc<MessageQueue>,
    /// The caller that waits for the first answer; `None` once the subscription was confirmed.
    asker: Option<Reply<Vec<Position>>>,
}

impl SubscriptionEntry {
    fn close(self, error: &ClientError) {
        self.queue.close(error.clone());
        if let Some(asker) = self.asker {
            drop(asker.send(Err(error.clone())));
        }
    }
}

impl Subscriptions {
    /// Adds a subscription. Returns `None` if there is one with this key already; the caller gets the error.
    pub(crate) fn add(
        &mut self,
        subscribe: Subscribe,
        queue: Arc<MessageQueue>,
        asker: Reply<Vec<Position>>,
    ) -> Option<Key> {
        let key = (subscribe.topic.clone(), subscribe.group.clone());
        if self.entries.contains_key(&key) {
            let (topic, group) = (key.0.to_string(), key.1.to_string());
            drop(asker.send(Err(ClientError::AlreadySubscribed { topic, group })));
            return None;
        }
        self.entries.insert(key.clone(), SubscriptionEntry { subscribe, queue, asker: Some(asker) });
        Some(key)
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            entry.close(&ClientError::Closed);
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn request(&self, key: &Key) -> Option<Subscribe> {
        self.entries.get(key).map(|entry| entry.subscribe.clone())
    }

    /// Whether the server has ever confirmed the subscription.
    pub(crate) fn is_confirmed(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.asker.is_none())
    }

    /// Takes a message. If the messages before it are of another subscription, they are handed over.
    pub(crate) fn deliver(&mut self, message: Box<Message>, epoch: u64) -> Option<Key> {
        let mut abandoned = None;
        if self.arrived.back().is_some_and(|last| last.group != message.group || last.topic != message.topic)
        {
            abandoned = self.hand_over(epoch);
        }
        self.arrived.push_back(message);
        abandoned
    }

    /// Passes the messages to their subscription. Returns its key when it was dropped, so that nobody takes them.
    pub(crate) fn hand_over(&mut self, epoch: u64) -> Option<Key> {
        let last = self.arrived.back()?;
        let key = (last.topic.clone(), last.group.clone());
        let is_taken = match self.entries.get(&key) {
            Some(entry) => entry.queue.put(&mut self.arrived, epoch),
            None => true,
        };
        self.arrived.clear();
        (!is_taken).then_some(key)
    }

    pub(crate) fn subscribed(&mut self, key: &Key, answer: OkFrame) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        // A seek is requested once; after a reconnect the group continues from its commit.
        entry.subscribe.reset = false;
        if let Some(asker) = entry.asker.take() {
            let positions = answer.subscribed.map(|subscribed| subscribed.partitions).unwrap_or_default();
            drop(asker.send(Ok(positions)));
        }
    }

    pub(crate) fn refused(&mut self, key: &Key, error: FrameError) {
        if let Some(entry) = self.entries.remove(key) {
            entry.close(&ClientError::Refused(error));
        }
    }

    /// Drops all deliveries that were not taken, because their connection is gone. Returns how many they were.
    pub(crate) fn lost(&self) -> usize {
        self.entries.values().map(|entry| entry.queue.clear()).sum()
    }

    /// Handles an error that answers no request. If it says that a topic or group is gone or forbidden, its
    /// subscriptions end.
    pub(crate) fn notice(&mut self, error: &FrameError) {
        let fatal = matches!(error.code, ErrorCode::BadTopic | ErrorCode::BadGroup | ErrorCode::Forbidden);
        let Some(topic) = error.about.topic.as_deref().filter(|_| fatal) else { return };
        let group = error.about.group.as_deref();
        let meant = |(t, g): &&Key| t.as_str() == topic && group.is_none_or(|group| g.as_str() == group);
        let keys: Vec<_> = self.entries.keys().filter(meant).cloned().collect();
        for key in keys {
            self.refused(&key, error.clone());
        }
    }

    pub(crate) fn fail_all(&mut self, error: &ClientError) {
        for (_, entry) in std::mem::take(&mut self.entries) {
            entry.close(error);
        }
    }
}
