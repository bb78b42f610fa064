//! The progress of handlers: how far each has come in its lanes, and which claims it has open.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use millrace_model::{
    ClaimRow, HandlerId, HandlerRow, LaneRow, Namespace, Offset, Partition, Space, Stream, Timestamp,
    TopicKey, TopicName, keys,
};
use millrace_store::{KeyRange, StreamBounds};

use super::{Admin, AdminError};

/// A handler of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) id: HandlerId,
    pub(super) topic: TopicKey,
    pub(super) registered: Timestamp,
    pub(super) paused: bool,
    /// By partition and lane; a missing lane was not begun yet.
    lanes: BTreeMap<(Partition, Option<u32>), LaneRow>,
    pub(super) open: BTreeMap<(Stream, Offset), ClaimRow>,
}

impl Standing {
    /// Returns the first offset of a lane that the handler has not come to.
    pub(super) fn next(&self, partition: Partition, lane: Option<u32>) -> Offset {
        let plain = self.lanes.get(&(partition, None));
        match (lane, self.lanes.get(&(partition, lane))) {
            (None, _) => plain.map_or(Offset::FIRST, |row| row.next),
            (Some(_), Some(row)) => row.next.max(plain.map_or(Offset::FIRST, |plain| plain.off)),
            (Some(_), None) => plain.map_or(Offset::FIRST, |row| row.off),
        }
    }
}

impl Admin {
    /// Returns every handler of the namespace, by id.
    pub(super) fn standings(&self, namespace: &Namespace) -> Result<Vec<Standing>, AdminError> {
        let prefix = KeyRange::prefix(&format!("{namespace}/"));
        let mut standings: BTreeMap<String, Standing> = BTreeMap::new();
        self.each_row::<AdminError>(Space::Handlers, &prefix, |row| {
            let handler = HandlerRow::decode(&row.key, &row.value)?;
            let id = row.key.rsplit('/').next().and_then(|id| HandlerId::new(id).ok());
            if let (Some(id), Ok(topic)) = (id, TopicName::new(&handler.topic)) {
                let topic = TopicKey::new(namespace, &topic);
                let (lanes, open) = (BTreeMap::new(), BTreeMap::new());
                let HandlerRow { registered, paused, .. } = handler;
                let standing = Standing { id, topic, registered, paused, lanes, open };
                standings.insert(standing.id.to_string(), standing);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.each_row::<AdminError>(Space::Lanes, &prefix, |row| {
            let lane = LaneRow::decode(&row.key, &row.value)?;
            let mut parts = row.key.split('/').skip(1);
            let (handler, topic) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if let (Some(place), Some(standing)) = (keys::lane_place(&row.key), standings.get_mut(handler))
                && standing.topic.topic() == topic
            {
                standing.lanes.insert(place, lane);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.each_row::<AdminError>(Space::Claims, &prefix, |row| {
            let claim = ClaimRow::decode(&row.key, &row.value)?;
            if let Some((handler, stream, offset)) = keys::claim_place(&row.key)
                && let Some(standing) = standings.get_mut(handler)
            {
                standing.open.insert((stream, offset), claim);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(standings.into_values().collect())
    }

    /// Counts the events of all streams of its topic that the handler has not finished.
    pub(super) fn owed(&self, standing: &Standing, streams: &[StreamBounds]) -> Result<u64, AdminError> {
        let of_topic = streams.iter().filter(|bounds| bounds.stream.topic == standing.topic);
        of_topic.map(|bounds| self.unfinished(&[standing], bounds)).sum()
    }

    /// Counts the events of a stream that some handler has not finished, each once: those ahead of the handlers' lanes
    /// and those that they have open. Without a handler that is every retained event. Offsets that compaction left
    /// empty count too: telling them apart would mean reading the stream.
    pub(super) fn unfinished(
        &self,
        standings: &[&Standing],
        bounds: &StreamBounds,
    ) -> Result<u64, AdminError> {
        let partition = bounds.stream.partition;
        if standings.is_empty() {
            return Ok(bounds.next.0 - bounds.start.0.min(bounds.next.0));
        }
        // Returns the first offset of a lane that some handler has not come to.
        let unseen = |lane| {
            let next = standings.iter().map(|standing| standing.next(partition, lane)).min();
            next.unwrap_or(Offset::FIRST).max(bounds.start)
        };
        let plain = unseen(None);
        let mut urgent: BTreeMap<Offset, u32> = BTreeMap::new();
        let mut made = String::new();
        let prefix = KeyRange::prefix(&format!("{}/", bounds.stream));
        self.each_row::<AdminError>(Space::OffPriority, &prefix, |row| {
            if let Some((lane, offset)) = keys::off_priority_place(&row.key) {
                // Several streams may have had this name: the rows of the last one, which come last, count.
                let of = row.key.rsplit('/').nth(2).unwrap_or_default();
                if of != made {
                    of.clone_into(&mut made);
                    urgent.clear();
                }
                if offset >= bounds.start {
                    urgent.insert(offset, lane);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let is_unseen = |offset: Offset| match urgent.get(&offset) {
            Some(lane) => offset >= unseen(Some(*lane)),
            None => offset >= plain,
        };
        let open: BTreeSet<Offset> = standings
            .iter()
            .flat_map(|standing| standing.open.keys())
            .filter(|(stream, offset)| *stream == bounds.stream && !is_unseen(*offset))
            .map(|(_, offset)| *offset)
            .collect();
        let beyond = bounds.next.0.saturating_sub(plain.0);
        // Offsets ahead of the plain lane that belong to another lane.
        let elsewhere = urgent.range(plain..).count() as u64;
        let waiting = urgent.keys().filter(|offset| is_unseen(**offset)).count() as u64;
        Ok(beyond.saturating_sub(elsewhere) + waiting + open.len() as u64)
    }
}
