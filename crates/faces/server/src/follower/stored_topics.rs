//! Topics as the store has them: settings, bounds of their partitions, groups. A leader asks the bus's engine instead,
//! which has the same in memory.

use millrace_bus::{BusError, Compared, PartitionView, SchemaView, TopicView};
use millrace_model::{
    Group, Namespace, Partition, Requester, Space, Timestamp, TopicKey, TopicName, TopicRow, keys,
};
use millrace_store::{FailureCause, KeyRange, Retention, Store, StoreError, each_row};

use crate::http::topic_access::{check_topic, topic_row};

/// Rows read at a time. Most of them are shown, unless access lists hide them.
const ROWS: usize = 256;
/// Later than every event.
const END_OF_TIME: Timestamp = Timestamp((1 << 53) - 1);

/// Which topics to list.
pub(super) struct TopicListing {
    pub(super) namespace: Namespace,
    pub(super) after: Option<TopicName>,
    pub(super) max: usize,
    pub(super) dead_letters_only: bool,
}

/// Returns the topics that `by` may read, by name, and whether there are more.
pub(super) fn list(
    store: &dyn Store,
    by: &Requester,
    listing: &TopicListing,
) -> Result<(Vec<TopicView>, bool), StoreError> {
    let TopicListing { namespace, after, max, dead_letters_only } = listing;
    let mut range = KeyRange::prefix(&format!("{namespace}/"));
    if let Some(after) = after {
        range.from = behind(&keys::topic(&TopicKey::new(namespace, after)));
    }
    let mut found = Vec::new();
    loop {
        let rows = store.scan(Space::Topics, &range, ROWS)?;
        let Some(last) = rows.last() else { return Ok((found, false)) };
        range.from = behind(&last.key);
        for row in &rows {
            let topic = TopicKey::parse(&row.key).map_err(damaged)?;
            let is_wanted = !dead_letters_only || topic.is_dead_letter();
            if !is_wanted || check_topic(store, by, &topic, Partition(0))?.is_err() {
                continue;
            }
            if found.len() == *max {
                return Ok((found, true));
            }
            let row = TopicRow::decode(&row.key, &row.value).map_err(damaged)?;
            found.push(view(store, topic, row)?);
        }
    }
}

/// Returns a topic, if it exists and `by` may read it.
pub(super) fn show(
    store: &dyn Store,
    by: &Requester,
    topic: &TopicKey,
) -> Result<Result<TopicView, BusError>, StoreError> {
    if let Err(error) = check_topic(store, by, topic, Partition(0))? {
        return Ok(Err(error));
    }
    match topic_row(store, topic)? {
        Some(row) => view(store, topic.clone(), row).map(Ok),
        // The topic was deleted since it was checked.
        None => Ok(Err(BusError::UnknownTopic(topic.clone()))),
    }
}

/// Two lookups for each partition: as much as the answer is long, however many streams the store has.
fn view(store: &dyn Store, topic: TopicKey, row: TopicRow) -> Result<TopicView, StoreError> {
    let bounds = |partition| {
        let stream = topic.stream(partition);
        // Without a rule nothing is to be removed, so this is where the stream begins.
        let start = store.retention_start(&stream, Retention::default())?;
        Ok(PartitionView { partition, start, next: store.seek(&stream, END_OF_TIME)? })
    };
    let partitions = (0..row.config.partitions.max(1)).map(|partition| bounds(Partition(partition)));
    let partitions = partitions.collect::<Result<Vec<_>, StoreError>>()?;
    let schema = (row.schema_version > 0).then(|| SchemaView {
        incarnation: row.incarnation,
        version: row.config.schema.as_ref().map(|_| row.schema_version),
        checked: Compared::default(),
    });
    let groups = groups(store, &topic)?;
    Ok(TopicView { topic, config: row.config, partitions, groups, schema })
}

fn groups(store: &dyn Store, topic: &TopicKey) -> Result<Vec<Group>, StoreError> {
    let prefix = format!("{}/", keys::topic(topic));
    let mut names = Vec::new();
    each_row(store, Space::Groups, KeyRange::prefix(&prefix), |row| names.push(row.key))?;
    let names = names.iter().filter_map(|key| key.strip_prefix(&prefix));
    names.map(|name| Group::new(name).map_err(damaged)).collect()
}

/// The first key behind `key`.
fn behind(key: &str) -> String {
    format!("{key}\0")
}

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unreadable(FailureCause::of(error))
}
