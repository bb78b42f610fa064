//! Where handlers stand: how far each has looked, and what it has open.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use millrace_model::{
    ClaimRow, HandlerId, HandlerRow, LaneRow, Namespace, Offset, Partition, Space, Stream, TopicKey,
    TopicName, keys,
};
use millrace_store::{KeyRange, StreamBounds};

use super::{Admin, AdminError};

/// One handler of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) id: HandlerId,
    pub(super) topic: TopicKey,
    /// By partition and lane; a missing one has not been looked at yet.
    lanes: BTreeMap<(Partition, Option<u32>), LaneRow>,
    pub(super) open: BTreeMap<(Stream, Offset), ClaimRow>,
}

impl Standing {
    /// The first offset of a lane that the handler has not looked at.
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
    /// Every handler the namespace knows, by id.
    pub(super) fn standings(&self, namespace: &Namespace) -> Result<Vec<Standing>, AdminError> {
        let prefix = KeyRange::prefix(&format!("{namespace}/"));
        let mut standings: BTreeMap<String, Standing> = BTreeMap::new();
        self.each_row::<AdminError>(Space::Handlers, &prefix, |row| {
            let handler = HandlerRow::decode(&row.key, &row.value)?;
            let id = row.key.rsplit('/').next().and_then(|id| HandlerId::new(id).ok());
            if let (Some(id), Ok(topic)) = (id, TopicName::new(&handler.topic)) {
                let topic = TopicKey::new(namespace, &topic);
                let standing = Standing { id, topic, lanes: BTreeMap::new(), open: BTreeMap::new() };
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

    /// Events the handler has not finished: those beyond its lanes and those it has open.
    pub(super) fn unfinished(
        &self,
        standing: &Standing,
        streams: &[StreamBounds],
    ) -> Result<u64, AdminError> {
        let mut waiting = standing.open.len() as u64;
        for bounds in streams.iter().filter(|bounds| bounds.stream.topic == standing.topic) {
            let partition = bounds.stream.partition;
            let plain = standing.next(partition, None).max(bounds.start);
            waiting += bounds.next.0.saturating_sub(plain.0);
            // Of the rows of several streams that had this name, those of the last one count: they come last.
            let (mut made, mut elsewhere, mut urgent) = (String::new(), 0, 0);
            let prefix = KeyRange::prefix(&format!("{}/{partition}/", standing.topic));
            self.each_row::<AdminError>(Space::OffPriority, &prefix, |row| {
                let Some((lane, offset)) = keys::off_priority_place(&row.key) else {
                    return Ok(ControlFlow::Continue(()));
                };
                let of = row.key.rsplit('/').nth(2).unwrap_or_default();
                if of != made {
                    (made, elsewhere, urgent) = (of.to_owned(), 0, 0);
                }
                if offset >= bounds.start {
                    elsewhere += u64::from(offset >= plain);
                    urgent += u64::from(offset >= standing.next(partition, Some(lane)));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            // Within the plain lane's distance, but not of the plain lane.
            waiting = waiting.saturating_sub(elsewhere) + urgent;
        }
        Ok(waiting)
    }
}
