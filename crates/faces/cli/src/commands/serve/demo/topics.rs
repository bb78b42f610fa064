//! The demo's topics: their names, their bounds, and the check that a store holds nothing else.

use millrace_broker::BrokerHandle;
use millrace_bus::{BusError, Reply, Request};
use millrace_model::{
    KeyRange, Namespace, Requester, SYSTEM_TOPICS, Space, TopicConfig, TopicKey, TopicName,
};
use millrace_store::{Store, StoreError};

use crate::failure::Failure;

pub(super) const ORDERS: &str = "demo.orders";
pub(super) const PAYMENTS: &str = "demo.payments";
pub(super) const EMAILS: &str = "demo.emails";
pub(super) const REMINDERS: &str = "demo.reminders";
/// All topics whose names begin so are the demo's, its dead letters included.
const OWN_PREFIX: &str = "demo.";

const HOUR_MS: u64 = 3_600_000;
/// The most that one topic keeps: an hour at the shop's rate takes a third of it.
const TOPIC_BYTES: u64 = 16 << 20;
const LETTERS_MS: u64 = 24 * HOUR_MS;
const LETTERS_BYTES: u64 = 4 << 20;
/// Derived events bring ids of their own, which the store keeps for this long.
const DEDUPE_MS: u64 = 600_000;
const ATTEMPTS: u32 = 3;
/// Rows of topics that the check reads: a store with more has other topics.
const TOPICS_MAX: usize = 1000;

/// A name of the default namespace. The names are constants, so this fails for none of them.
pub(super) fn key(name: &str) -> Result<TopicKey, Failure> {
    let name = TopicName::new(name).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(TopicKey::new(&Namespace::default(), &name))
}

/// Makes the topics that do not exist yet. Existing ones keep their settings, which a visitor may have changed.
pub(super) async fn make(broker: &BrokerHandle) -> Result<(), Failure> {
    for name in [ORDERS, PAYMENTS, EMAILS, REMINDERS] {
        make_one(broker, key(name)?, HOUR_MS, TOPIC_BYTES).await?;
    }
    for name in [ORDERS, PAYMENTS, REMINDERS] {
        make_one(broker, key(&format!("{name}.DLQ"))?, LETTERS_MS, LETTERS_BYTES).await?;
    }
    Ok(())
}

async fn make_one(broker: &BrokerHandle, topic: TopicKey, ms: u64, bytes: u64) -> Result<(), Failure> {
    let config = TopicConfig {
        retention_ms: Some(ms),
        retention_bytes: Some(bytes),
        max_attempts: Some(ATTEMPTS),
        dedupe_window_ms: Some(DEDUPE_MS),
        ..TopicConfig::default()
    };
    let request = Request::CreateTopic { topic: topic.clone(), settings: config.into(), only_new: true };
    let failed =
        |why: String| Failure::Failed(format!("the demo cannot make topic {}: {why}", topic.topic()));
    match broker.call(Requester::Trusted, request).await {
        Ok(Reply::Topic { .. } | Reply::Refused(BusError::TopicExists(_))) => Ok(()),
        Ok(Reply::Refused(error)) => Err(failed(error.to_string())),
        Ok(other) => Err(failed(format!("unexpected answer {other:?}"))),
        Err(ended) => Err(failed(ended.to_string())),
    }
}

/// Refuses a store that holds topics of others: invented events must not get among real ones. Reads the store.
pub(in crate::commands::serve) fn refuse_foreign_topics(store: &dyn Store) -> Result<(), Failure> {
    let foreign = foreign_topics(store).map_err(|error| Failure::Failed(error.to_string()))?;
    let Some(first) = foreign.first() else { return Ok(()) };
    Err(Failure::Failed(format!(
        "demo is set, and the store has topics that are not the demo's, such as {first}: invented events must not get \
         among real ones. Name another store for the demo (--store sqlite:///FILE or memory:), or, if this is the \
         demo's own file and nothing in it is needed, remove millrace-demo.db",
    )))
}

/// Topics of which there is a row, an event, or both.
fn foreign_topics(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let mut names = store.scan_keys(Space::Topics, &KeyRange::all(), TOPICS_MAX)?;
    names.extend(store.streams()?.into_iter().map(|bounds| bounds.stream.topic.to_string()));
    names.retain(|name| !is_own(name));
    Ok(names)
}

fn is_own(key: &str) -> bool {
    let own_namespace = Namespace::default();
    let Some((namespace, topic)) = key.split_once('/') else { return false };
    SYSTEM_TOPICS.contains(&topic) || namespace == own_namespace.as_str() && topic.starts_with(OWN_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_demos_topics_and_the_servers_are_its_own() {
        for own in [
            "default/demo.orders",
            "default/demo.payments.DLQ",
            "default/system.metrics",
            "blue/system.bus.dlq",
        ] {
            assert!(is_own(own), "{own}");
        }
        for foreign in
            ["default/orders", "default/demo", "blue/demo.orders", "default/demonstration", "orders"]
        {
            assert!(!is_own(foreign), "{foreign}");
        }
    }
}
