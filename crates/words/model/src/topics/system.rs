//! The server's own topics: their names, and who may read them by default.

use crate::log::stream::TopicKey;
use crate::topics::access::Principal;
use crate::topics::name::{DLQ_SUFFIX, TopicName};

/// Prefix of the server's own topics. Where access is controlled, nobody else may publish to them unless the topic's
/// list permits it. Nothing about them is audited, because audit records about audit records would have no end.
pub const SYSTEM_PREFIX: &str = "system.";
/// Counters and gauges, published at intervals.
pub const METRICS_TOPIC: &str = "system.metrics";
/// The audit: refusals and changes, with their agents, if the configuration wants it.
pub const AUDIT_TOPIC: &str = "system.bus.audit";
/// The trace of the CQRS loop's messages, if the configuration wants it kept.
pub const TRACE_TOPIC: &str = "system.router.trace";
/// A second copy of every dead letter of its namespace; for topics with a list of readers, without what the event's
/// author wrote.
pub const DEAD_LETTER_MIRROR: &str = "system.bus.dlq";

/// The topics that exist from the start.
pub const SYSTEM_TOPICS: [&str; 3] = [METRICS_TOPIC, AUDIT_TOPIC, DEAD_LETTER_MIRROR];

/// Returns the scopes or roles that may read a topic of the server that has no list of its own; `None` for any other
/// topic, which everybody may read. The mirror shows the events of every topic without a list, and the fate of the
/// events of all others, so only administrators, who write the lists, may read it.
pub fn system_readers(topic: &str) -> Option<&'static [&'static str]> {
    match topic.strip_suffix(DLQ_SUFFIX).unwrap_or(topic) {
        METRICS_TOPIC => Some(&["metrics", "admin"]),
        AUDIT_TOPIC | DEAD_LETTER_MIRROR | TRACE_TOPIC => Some(&["admin"]),
        _ => None,
    }
}

impl Principal {
    /// Whether the principal administers topics and their lists. Scopes count as roles.
    pub fn is_administrator(&self) -> bool {
        self.is("admin")
    }

    /// Whether the principal may read this topic if it has no list.
    pub fn may_read_unlisted(&self, topic: &TopicKey) -> bool {
        system_readers(topic.topic()).is_none_or(|readers| readers.iter().any(|name| self.is(name)))
    }
}

impl Principal {
    /// Whether the principal may know of a topic that it may not read. Everybody knows the server's own topics,
    /// administrators know all topics, and others know those that their token and the topic's list let them publish to.
    pub fn may_see(&self, topic: &TopicKey, publish_listed: bool) -> bool {
        topic.is_system() || self.is_administrator() || publish_listed && self.is("publish")
    }
}

impl TopicName {
    pub fn is_system(&self) -> bool {
        self.as_str().starts_with(SYSTEM_PREFIX)
    }
}

impl TopicKey {
    pub fn is_system(&self) -> bool {
        self.topic().starts_with(SYSTEM_PREFIX)
    }

    /// Returns the topic for a second copy of this topic's dead letters: in the same namespace, so that tenants never
    /// see each other's letters. `None` for the server's own topics, or a failing reader of the mirror would fill it
    /// for ever.
    pub fn dead_letter_mirror(&self) -> Option<TopicKey> {
        let mirrored = !self.is_system() && !self.is_dead_letter();
        mirrored.then(|| TopicKey::parse(&format!("{}/{DEAD_LETTER_MIRROR}", self.namespace())).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_topics_of_users_have_their_dead_letters_mirrored() {
        let mirror = |text| TopicKey::parse(text).unwrap().dead_letter_mirror().map(|key| key.to_string());
        assert_eq!(mirror("blue/orders").as_deref(), Some("blue/system.bus.dlq"));
        assert_eq!(mirror("default/systematic").as_deref(), Some("default/system.bus.dlq"));
        for text in ["default/system.metrics", "default/system.bus.dlq", "default/orders.DLQ"] {
            assert_eq!(mirror(text), None, "{text}");
        }
    }

    #[test]
    fn dead_letters_of_a_server_topic_are_as_private_as_it() {
        assert_eq!(system_readers("system.bus.dlq.DLQ"), system_readers("system.bus.dlq"));
        assert_eq!((system_readers("system.other"), system_readers("orders")), (None, None));
    }
}
