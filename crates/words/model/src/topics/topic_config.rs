//! The settings of a topic, and the filter of a group.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::log::event::Event;
use crate::log::partition::PARTITIONS_MAX;
use crate::rows::batch::Durability;
use crate::topics::access::{AccessList, Action};
use crate::topics::group_access::{GroupAccess, GroupAccessError, GroupAccessPatch};

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
    /// Access lists: who may publish, and who may read; no list = everybody.
    #[serde(rename = "publishACL", skip_serializing_if = "Option::is_none")]
    pub publish_acl: Option<AccessList>,
    #[serde(rename = "subscribeACL", skip_serializing_if = "Option::is_none")]
    pub subscribe_acl: Option<AccessList>,
    /// Access lists of groups: who may join, seek and delete them, in addition to `subscribe_acl`; no list = only
    /// `subscribe_acl` counts.
    #[serde(rename = "groupACL", skip_serializing_if = "Option::is_none")]
    pub group_acl: Option<GroupAccess>,
    /// Of events with one key only the newest is kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compact: bool,
    /// The mode of acks of clients that choose none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_mode: Option<AckMode>,
    /// In every group, events of one key go to one member, one at a time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
    /// The JSON Schema that the payload of every published event must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Value>>,
}

/// Which offsets an ACK completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckMode {
    /// The acked offset, and every lower one in flight on the same connection that was delivered before it.
    #[default]
    Cumulative,
    /// The acked offset only.
    Individual,
}

impl AckMode {
    pub fn as_str(self) -> &'static str {
        match self {
            AckMode::Cumulative => "cumulative",
            AckMode::Individual => "individual",
        }
    }

    pub fn parse(text: &str) -> Option<AckMode> {
        [AckMode::Cumulative, AckMode::Individual].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// A change to a topic's settings: a field that is `None` stays as it is, `Some(None)` resets it to its default.
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
    pub group_acl: Option<Option<GroupAccessPatch>>,
    pub compact: Option<bool>,
    pub ack_mode: Option<Option<AckMode>>,
    pub sticky: Option<bool>,
    pub schema: Option<Option<Arc<Value>>>,
    /// Change the schema although retained events do not match the new one.
    pub force_schema: bool,
}

/// Sets every setting that the configuration has, and resets none.
impl From<TopicConfig> for Box<TopicPatch> {
    fn from(config: TopicConfig) -> Box<TopicPatch> {
        Box::new(config.into())
    }
}

impl From<TopicConfig> for TopicPatch {
    fn from(config: TopicConfig) -> TopicPatch {
        TopicPatch {
            partitions: (config.partitions > 0).then_some(config.partitions),
            retention_ms: config.retention_ms.map(Some),
            retention_bytes: config.retention_bytes.map(Some),
            max_attempts: config.max_attempts.map(Some),
            ack_timeout_ms: config.ack_timeout_ms.map(Some),
            dedupe_window_ms: config.dedupe_window_ms.map(Some),
            durability: config.durability.map(Some),
            publish_acl: config.publish_acl.map(Some),
            subscribe_acl: config.subscribe_acl.map(Some),
            group_acl: config.group_acl.map(|access| Some(access.into_patch())),
            compact: config.compact.then_some(true),
            ack_mode: config.ack_mode.map(Some),
            sticky: config.sticky.then_some(true),
            schema: config.schema.map(Some),
            force_schema: false,
        }
    }
}

impl TopicPatch {
    /// Returns the change without the settings that it would reset to their defaults.
    pub fn without_resets(self) -> TopicPatch {
        TopicPatch {
            retention_ms: self.retention_ms.filter(Option::is_some),
            retention_bytes: self.retention_bytes.filter(Option::is_some),
            max_attempts: self.max_attempts.filter(Option::is_some),
            ack_timeout_ms: self.ack_timeout_ms.filter(Option::is_some),
            dedupe_window_ms: self.dedupe_window_ms.filter(Option::is_some),
            durability: self.durability.filter(Option::is_some),
            publish_acl: self.publish_acl.filter(Option::is_some),
            subscribe_acl: self.subscribe_acl.filter(Option::is_some),
            group_acl: self.group_acl.filter(Option::is_some),
            ack_mode: self.ack_mode.filter(Option::is_some),
            schema: self.schema.filter(Option::is_some),
            ..self
        }
    }

    pub fn sets_access(&self) -> bool {
        let sets_group = |patch: &GroupAccessPatch| patch.values().any(Option::is_some);
        matches!(self.publish_acl, Some(Some(_)))
            || matches!(self.subscribe_acl, Some(Some(_)))
            || matches!(&self.group_acl, Some(Some(patch)) if sets_group(patch))
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
    #[error("groupACL is refused: {0}")]
    GroupAccess(#[from] GroupAccessError),
}

impl TopicConfig {
    /// Fills in the defaults that are stored, and checks the other settings.
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
        self.publish_acl.is_some() || self.subscribe_acl.is_some() || self.group_acl.is_some()
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
            group_acl: match &patch.group_acl {
                None => self.group_acl.clone(),
                Some(None) => None,
                Some(Some(patch)) => GroupAccess::patched(self.group_acl.as_ref(), patch)?,
            },
            compact: patch.compact.unwrap_or(self.compact),
            ack_mode: patch.ack_mode.unwrap_or(self.ack_mode),
            sticky: patch.sticky.unwrap_or(self.sticky),
            schema: patch.schema.clone().unwrap_or_else(|| self.schema.clone()),
        }
        .resolved()
    }
}

/// The events that a group wants; both conditions must hold. Events that do not match count as done for the group.
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
