//! What a topic's owner may set, and the filter of a group.

use serde::{Deserialize, Serialize};

use crate::access::{AccessList, Action};
use crate::batch::Durability;
use crate::event::Event;
use crate::partition::PARTITIONS_MAX;

/// Settings of one topic. An absent value means the server's default (or no limit, for retention).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// How many partitions; 0 stands for the default and is resolved before the config is stored.
    pub partitions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedupe_window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Who may publish and read; no list = everybody.
    #[serde(rename = "publishACL", skip_serializing_if = "Option::is_none")]
    pub publish_acl: Option<AccessList>,
    #[serde(rename = "subscribeACL", skip_serializing_if = "Option::is_none")]
    pub subscribe_acl: Option<AccessList>,
    /// Of events with one key only the newest is kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compact: bool,
}

/// A change to a topic's settings: what is `None` stays, what is `Some(None)` goes back to its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPatch {
    pub partitions: Option<u32>,
    pub retention_ms: Option<Option<u64>>,
    pub retention_bytes: Option<Option<u64>>,
    pub max_attempts: Option<Option<u32>>,
    pub ack_timeout_ms: Option<Option<u64>>,
    pub dedupe_window_ms: Option<Option<u64>>,
    pub durability: Option<Option<Durability>>,
    pub publish_acl: Option<Option<AccessList>>,
    pub subscribe_acl: Option<Option<AccessList>>,
    pub compact: Option<bool>,
}

impl TopicPatch {
    pub fn sets_access(&self) -> bool {
        matches!(self.publish_acl, Some(Some(_))) || matches!(self.subscribe_acl, Some(Some(_)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("partitions is {0}: 1 to {PARTITIONS_MAX} are allowed")]
    Partitions(u32),
    #[error("partitions may only grow: the topic has {current}, {asked} were asked for")]
    Shrinks { current: u32, asked: u32 },
    #[error("{0} is 0: give at least 1, or leave it out for the default")]
    Zero(&'static str),
    #[error("compact and retentionBytes are both set: a compacted topic can be limited by retentionMs only")]
    CompactBySize,
}

impl TopicConfig {
    /// Fills in what must be settled before a config is stored, and checks the rest.
    pub fn resolved(mut self) -> Result<TopicConfig, ConfigError> {
        self.partitions = self.partitions.max(1);
        if self.partitions > PARTITIONS_MAX {
            return Err(ConfigError::Partitions(self.partitions));
        }
        if self.max_attempts == Some(0) {
            return Err(ConfigError::Zero("maxAttempts"));
        }
        if self.compact && self.retention_bytes.is_some() {
            return Err(ConfigError::CompactBySize);
        }
        if self.ack_timeout_ms == Some(0) {
            return Err(ConfigError::Zero("ackTimeoutMs"));
        }
        Ok(self)
    }

    pub fn has_access(&self) -> bool {
        self.publish_acl.is_some() || self.subscribe_acl.is_some()
    }

    pub fn access(&self, action: Action) -> Option<&AccessList> {
        match action {
            Action::Publish => self.publish_acl.as_ref(),
            Action::Subscribe => self.subscribe_acl.as_ref(),
        }
    }

    pub fn patched(&self, patch: &TopicPatch) -> Result<TopicConfig, ConfigError> {
        let asked = patch.partitions.unwrap_or(self.partitions);
        if asked < self.partitions {
            return Err(ConfigError::Shrinks { current: self.partitions, asked });
        }
        TopicConfig {
            partitions: asked,
            retention_ms: patch.retention_ms.unwrap_or(self.retention_ms),
            retention_bytes: patch.retention_bytes.unwrap_or(self.retention_bytes),
            max_attempts: patch.max_attempts.unwrap_or(self.max_attempts),
            ack_timeout_ms: patch.ack_timeout_ms.unwrap_or(self.ack_timeout_ms),
            dedupe_window_ms: patch.dedupe_window_ms.unwrap_or(self.dedupe_window_ms),
            durability: patch.durability.unwrap_or(self.durability),
            publish_acl: patch.publish_acl.clone().unwrap_or_else(|| self.publish_acl.clone()),
            subscribe_acl: patch.subscribe_acl.clone().unwrap_or_else(|| self.subscribe_acl.clone()),
            compact: patch.compact.unwrap_or(self.compact),
        }
        .resolved()
    }
}

/// Which events a group wants; both conditions must hold. What does not match counts as done for the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<(String, String)>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.key.is_none() && self.header.is_none()
    }

    pub fn matches(&self, event: &Event) -> bool {
        let key_matches = self.key.as_ref().is_none_or(|wanted| event.body.key.as_deref() == Some(wanted));
        key_matches
            && self.header.as_ref().is_none_or(|(name, wanted)| {
                event.body.headers.as_ref().and_then(|headers| headers.get(name)).as_ref() == Some(wanted)
            })
    }
}
