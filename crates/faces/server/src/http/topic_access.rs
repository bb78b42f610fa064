//! The rule for reading a topic, by the rows of the store. The engine has the same rule for its own requests
//! (`bus/src/topics/access.rs`).

use millrace_bus::BusError;
use millrace_model::{Action, Partition, Requester, Space, TopicAccess, TopicKey, TopicRow, keys};
use millrace_store::{FailureCause, KeyRange, Store, StoreError};

use crate::access::Caller;
use crate::app::App;
use crate::refusal::Refusal;

/// Checks that the topic exists and that `by` may read it. Asks the store and not the engine, so that readers of
/// history never wait for publishers.
pub(crate) fn check_topic(
    store: &dyn Store,
    by: &Requester,
    topic: &TopicKey,
    partition: Partition,
) -> Result<Result<(), BusError>, StoreError> {
    let Some(TopicRow { config, .. }) = topic_row(store, topic)? else {
        return Ok(Err(BusError::UnknownTopic(topic.clone())));
    };
    if let Some(who) = by.principal() {
        let letters_of = match topic.dead_letters_of() {
            Some(of) => topic_row(store, &of)?,
            None => None,
        };
        let access = TopicAccess {
            topic,
            config: Some(&config),
            letters_of: letters_of.as_ref().map(|row| &row.config),
        };
        let action = Action::Subscribe;
        if !access.permits(who, action) {
            let refused = BusError::Forbidden { topic: topic.clone(), agent: who.agent.clone(), action };
            return Ok(Err(match access.may_be_seen_by(who) {
                true => refused,
                false => refused.hidden(BusError::UnknownTopic(topic.clone())),
            }));
        }
    }
    let partitions = config.partitions.max(1);
    if partition.0 >= partitions {
        return Ok(Err(BusError::UnknownPartition { topic: topic.clone(), partition, partitions }));
    }
    Ok(Ok(()))
}

/// Whether `by` may read a topic. Only administrators may read what is left of a deleted topic.
pub(crate) fn may_read(store: &dyn Store, by: &Requester, topic: &TopicKey) -> Result<bool, StoreError> {
    Ok(match (by.principal(), topic_row(store, topic)?) {
        (None, _) => true,
        (Some(who), None) => who.is_administrator(),
        (Some(_), Some(_)) => check_topic(store, by, topic, Partition(0))?.is_ok(),
    })
}

/// Whether an answer about a topic must leave out what events say: the caller only inspects, or is an administrator whom
/// the topic's list does not let read. Others, whom the list shuts out, get no answer at all.
pub(crate) async fn is_content_withheld(
    app: &App,
    caller: &Caller,
    topic: &TopicKey,
) -> Result<bool, Refusal> {
    if caller.is_withheld() {
        return Ok(true);
    }
    let (by, topic) = (caller.by(), topic.clone());
    app.read(move |store| Ok(!may_read(store, &by, &topic)?)).await
}

/// The row of a topic; `None` if there is no such topic.
pub(crate) fn topic_row(store: &dyn Store, topic: &TopicKey) -> Result<Option<TopicRow>, StoreError> {
    let key = keys::topic(topic);
    let rows = store.scan(Space::Topics, &KeyRange { to: Some(format!("{key}\0")), from: key }, 1)?;
    let Some(row) = rows.first() else { return Ok(None) };
    let row = TopicRow::decode(&row.key, &row.value);
    row.map(Some).map_err(|error| StoreError::Unreadable(FailureCause::of(error)))
}
