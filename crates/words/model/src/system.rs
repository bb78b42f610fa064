//! The server's own topics: their names, and who reads them if nobody says otherwise.

use crate::access::Principal;
use crate::name::{DLQ_SUFFIX, TopicName};
use crate::stream::TopicKey;

/// Topics whose name begins like this are the server's: where access is controlled nobody else writes them unless a list
/// of theirs says so, and nothing about them is audited, because a record of a record would have no end.
pub const SYSTEM_PREFIX: &str = "system.";
/// Counters and gauges, from time to time.
pub const METRICS_TOPIC: &str = "system.metrics";
/// Who was turned away and who changed what, if the configuration wants it.
pub const AUDIT_TOPIC: &str = "system.bus.audit";
/// What the CQRS loop saw, if the configuration wants it kept.
pub const TRACE_TOPIC: &str = "system.router.trace";
/// A second copy of every dead letter of its namespace; of topics with a list of readers, without what its author wrote.
pub const DEAD_LETTER_MIRROR: &str = "system.bus.dlq";

/// The topics that exist from the start.
pub const SYSTEM_TOPICS: [&str; 3] = [METRICS_TOPIC, AUDIT_TOPIC, DEAD_LETTER_MIRROR];

/// Scopes or roles that may read a topic of the server that has no list of its own. The mirror shows events of every
/// topic without a list, and what became of those of all others, so it is for those who write the lists. `None`: no such topic, everybody may.
pub fn system_readers(topic: &str) -> Option<&'static [&'static str]> {
    match topic.strip_suffix(DLQ_SUFFIX).unwrap_or(topic) {
        METRICS_TOPIC => Some(&["metrics", "admin"]),
        AUDIT_TOPIC | DEAD_LETTER_MIRROR | TRACE_TOPIC => Some(&["admin"]),
        _ => None,
    }
}

impl Principal {
    /// Whether they look after topics and their lists. Scopes are roles.
    pub fn is_administrator(&self) -> bool {
        self.is("admin")
    }

    /// Whether the topic lets them read it although it has no list.
    pub fn may_read_unlisted(&self, topic: &TopicKey) -> bool {
        system_readers(topic.topic()).is_none_or(|readers| readers.iter().any(|name| self.is(name)))
    }
}

impl Principal {
    /// Whether they may know of a topic that they may not read. Everybody knows the server's own; administrators see all;
    /// others see those that their token and the topic's list let them publish to.
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

    /// Where a second copy of this topic's dead letters goes: into its own namespace, so that tenants never see each
    /// other's. The server's own topics have none, or a failing reader of the mirror would feed it for ever.
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
