//! Delayed events: what waits until when, publishing one now, cancelling one.
//!
//! Every mover of due events checks that the row is still there, and so do these actions: each event is published at most
//! once, and never after it was cancelled.

use millrace_model::{
    Batch, DueBy, DueEvent, Durability, ElapsedRow, Namespace, Op, Space, Timestamp, TopicKey, TopicRow, keys,
};
use millrace_store::KeyRange;

use super::{Admin, AdminError, ChangeError, PAGE_ROWS};

/// An event that waits for its time.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayedView {
    pub event: DueEvent,
    /// When it is due by the wall clock; of a delay that is counted in elapsed time, as things stand.
    pub due: Timestamp,
    /// The topic that it was published to was deleted: it is never published.
    pub topic_gone: bool,
}

#[derive(Clone, Debug)]
pub struct DelayedQuery<'a> {
    pub topic: Option<&'a TopicKey>,
    /// [`DelayedPage::after`] of the page before.
    pub after: Option<&'a str>,
    pub max: usize,
    /// Rows that are looked at, of all namespaces: they are in one table.
    pub scan_max: usize,
}

/// A page of delayed events: first those that wait for a time of day, then those that wait for the end of a delay, each
/// in the order of their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelayedPage {
    pub events: Vec<DelayedView>,
    /// Set if there may be more: the next page begins behind this key.
    pub after: Option<String>,
}

impl Admin {
    pub fn delayed(
        &self,
        namespace: &Namespace,
        query: &DelayedQuery<'_>,
        now: Timestamp,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<DelayedPage, AdminError> {
        let ahead = self.elapsed_ahead(now)?;
        let mut page = DelayedPage::default();
        let from = query.after.map_or_else(String::new, |after| format!("{after}\0"));
        let mut range = KeyRange { from, to: None };
        let mut left = query.scan_max;
        while left > 0 {
            let rows = self.store.scan(Space::Due, &range, PAGE_ROWS.min(left))?;
            let Some(last) = rows.last() else { return Ok(DelayedPage { after: None, ..page }) };
            let (read, last) = (rows.len(), last.key.clone());
            for row in rows {
                let event = DueEvent::read(&row.key, &row.value).filter(|event| {
                    event.topic.namespace() == namespace.as_str()
                        && query.topic.is_none_or(|topic| event.topic == *topic)
                });
                if let Some(event) = event
                    && may_see(event.topic.topic())?
                {
                    if page.events.len() == query.max {
                        return Ok(page);
                    }
                    let due = due_of(&row.key, ahead);
                    let topic_gone = self.is_topic_gone(&event)?;
                    page.events.push(DelayedView { event, due, topic_gone });
                }
                page.after = Some(row.key);
            }
            left -= read;
            range.from = format!("{last}\0");
        }
        Ok(page)
    }

    /// Returns an event that waits, by the key of its row.
    pub fn delayed_event(&self, namespace: &Namespace, key: &str) -> Result<Option<DueEvent>, AdminError> {
        let Some(row) = self.row(Space::Due, key)? else { return Ok(None) };
        let event = DueEvent::read(&row.key, &row.value);
        Ok(event.filter(|event| event.topic.namespace() == namespace.as_str()))
    }

    /// Publishes a delayed event now, under the id that it was promised.
    pub fn publish_delayed(&self, event: &DueEvent, now: Timestamp) -> Result<(), ChangeError> {
        let mut ops = event.removal();
        ops.push(Op::Append(event.append()));
        self.write_delayed(event, true, ops, now)
    }

    /// Removes a delayed event, which is then never published. Its id is free again.
    pub fn cancel_delayed(&self, event: &DueEvent, now: Timestamp) -> Result<(), ChangeError> {
        self.write_delayed(event, false, event.removal(), now)
    }

    fn write_delayed(
        &self,
        event: &DueEvent,
        publishes: bool,
        ops: Vec<Op>,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let mut checks = vec![event.waits()];
        checks.extend(publishes.then(|| event.topic_stands()));
        let batch = Batch { nonce: rand::random(), now, durability: Durability::Fsync, checks, ops };
        if self.write(batch)? {
            return Ok(());
        }
        if publishes && self.row(Space::Due, &event.key)?.is_some() && self.is_topic_gone(event)? {
            return Err(ChangeError::TopicGone(event.topic.topic().to_owned()));
        }
        // As callers name it: without slashes.
        Err(ChangeError::NotDelayed(event.key.replace('/', "-")))
    }

    fn is_topic_gone(&self, event: &DueEvent) -> Result<bool, AdminError> {
        let row = self.row(Space::Topics, &keys::topic(&event.topic))?;
        let incarnation = row.and_then(|row| TopicRow::incarnation_of(&row.value));
        Ok(incarnation != Some(event.row.incarnation))
    }

    /// How far elapsed time is ahead of wall time, in milliseconds, by the row that all movers share.
    fn elapsed_ahead(&self, now: Timestamp) -> Result<i128, AdminError> {
        let Some(row) = self.row(Space::Kv, keys::ELAPSED)? else { return Ok(0) };
        let elapsed = ElapsedRow::decode(&row.key, &row.value)?.at(now);
        Ok(i128::from(elapsed.0) - i128::from(now.0))
    }
}

fn due_of(key: &str, ahead: i128) -> Timestamp {
    let at = keys::due_time(key).unwrap_or_default();
    match DueBy::of(key) {
        DueBy::Wall => at,
        DueBy::Elapsed => Timestamp(u64::try_from(i128::from(at.0) - ahead).unwrap_or(0)),
    }
}
