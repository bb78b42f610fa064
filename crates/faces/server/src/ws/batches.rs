//! MESSAGES frames: deliveries that leave together, for subscriptions that asked for such frames.

use std::collections::HashMap;

use millrace_broker::Item;
use millrace_bus::Reply;
use millrace_model::{Event, Group, Stream, TopicKey};
use millrace_wire::{MessagesWriter, Shown};

use crate::to_wire::{self, UnansweredRequest};

/// A frame of this size gets no further events.
const FRAME_BYTES: usize = 64 << 10;

/// Gathers the deliveries of one connection, which must send what it gets back, in that order.
#[derive(Debug, Default)]
pub(super) struct DeliveryBatches {
    /// How many events a frame may have, for the subscriptions where that is more than one.
    batch_max: HashMap<TopicKey, HashMap<Group, u32>>,
    open: Option<OpenBatch>,
}

/// A frame that may get further events.
#[derive(Debug)]
struct OpenBatch {
    stream: Stream,
    group: Group,
    batch_max: u32,
    frame: MessagesWriter,
}

impl OpenBatch {
    fn has_room_for(&self, group: &Group, event: &Event) -> bool {
        self.frame.events() < self.batch_max
            && self.frame.bytes() + event.body.bytes() <= FRAME_BYTES
            && self.group == *group
            && self.stream == event.stream
    }
}

impl DeliveryBatches {
    /// Takes a delivery if its subscription asked for frames of several events; gives it back otherwise, to be sent
    /// after the frame that [`DeliveryBatches::finish`] returns. The frame is one that this delivery had no room in.
    pub(super) fn take(&mut self, item: Item, payload_sha256: bool) -> (Option<String>, Option<Item>) {
        let Item::Delivery { group, event, attempts } = item else { return (self.finish(), Some(item)) };
        let shown = Shown { attempts, payload_sha256 };
        if let Some(open) = self.open.as_mut().filter(|open| open.has_room_for(&group, &event)) {
            open.frame.add(&event, shown);
            return (None, None);
        }
        let finished = self.finish();
        let batch_max =
            self.batch_max.get(&event.stream.topic).and_then(|groups| groups.get(&group)).copied();
        let Some(batch_max) = batch_max else {
            return (finished, Some(Item::Delivery { group, event, attempts }));
        };
        let frame = MessagesWriter::begin(&group, &event, shown);
        self.open = Some(OpenBatch { stream: event.stream.clone(), group, batch_max, frame });
        (finished, None)
    }

    /// Ends the open frame, if there is one, and returns it.
    pub(super) fn finish(&mut self) -> Option<String> {
        self.open.take().map(|open| open.frame.finish())
    }

    /// Learns which subscriptions begin and end, before their deliveries come.
    pub(super) fn note(&mut self, item: &Item, request: Option<&UnansweredRequest>) {
        match item {
            Item::Reply { reply: Reply::Subscribed { topic, group, .. }, .. } => {
                let batch_max = request.map_or(1, |request| request.batch_max);
                self.forget(topic.topic(), Some(group));
                if batch_max > 1 {
                    self.batch_max.entry(topic.clone()).or_default().insert(group.clone(), batch_max);
                }
            }
            Item::Reply { reply: Reply::Unsubscribed { topic, group }, .. } => {
                self.forget(topic.topic(), Some(group));
            }
            Item::Notice { error, group } => {
                if let Some(topic) = to_wire::about(error).topic {
                    self.forget(&topic, group.as_ref());
                }
            }
            Item::Reply { .. } | Item::Delivery { .. } => {}
        }
    }

    /// Forgets the subscription, or all of the topic. A connection has one namespace, so the name is enough.
    fn forget(&mut self, topic: &str, group: Option<&Group>) {
        if self.batch_max.is_empty() {
            return;
        }
        self.batch_max.retain(|key, groups| {
            if key.topic() == topic {
                groups.retain(|known, _| group.is_some_and(|group| group != known));
            }
            !groups.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_bus::BusError;
    use millrace_model::{
        EventBody, EventId, JsonText, Lineage, Namespace, Offset, Partition, Timestamp, TopicName,
    };
    use millrace_wire::ServerFrame;

    use super::*;

    fn topic() -> TopicKey {
        TopicKey::new(&Namespace::default(), &TopicName::new("t").unwrap())
    }

    fn group(name: &str) -> Group {
        Group::new(name).unwrap()
    }

    fn delivery(name: &str, partition: u32, offset: u64, payload: &str) -> Item {
        let body = EventBody {
            key: None,
            headers: None,
            priority: millrace_model::PRIORITY_DEFAULT,
            lineage: Lineage::default(),
            payload: JsonText::parse(payload).unwrap(),
        };
        let event = Event {
            stream: topic().stream(Partition(partition)),
            offset: Offset(offset),
            ts: Timestamp(1),
            id: EventId::parse("i").unwrap(),
            body: Arc::new(body),
        };
        Item::Delivery { group: group(name), event: Arc::new(event), attempts: 1 }
    }

    fn subscribed(name: &str) -> Item {
        let reply = Reply::Subscribed { topic: topic(), group: group(name), partitions: Vec::new() };
        Item::Reply { request: 1, reply }
    }

    fn request(batch_max: u32) -> UnansweredRequest {
        UnansweredRequest {
            arrived: std::time::Instant::now(),
            rid: None,
            op: "SUBSCRIBE",
            traced: None,
            trace: None,
            topic: None,
            group: None,
            batch_max,
        }
    }

    /// The frames that these deliveries leave in: the offsets of each; a single MESSAGE is shown as negative.
    fn frames(batches: &mut DeliveryBatches, items: Vec<Item>) -> Vec<Vec<i64>> {
        let mut sent = Vec::new();
        for item in items {
            let (finished, single) = batches.take(item, false);
            sent.extend(finished.map(|text| offsets(&text)));
            if let Some(Item::Delivery { event, .. }) = single {
                sent.push(vec![-(event.offset.0 as i64)]);
            }
        }
        sent.extend(batches.finish().map(|text| offsets(&text)));
        sent
    }

    fn offsets(text: &str) -> Vec<i64> {
        match ServerFrame::parse(text).unwrap() {
            ServerFrame::Messages(messages) => {
                messages.into_each().map(|message| message.offset.0 as i64).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_frame_ends_at_its_bounds_and_where_the_stream_or_the_group_changes() {
        let mut batches = DeliveryBatches::default();
        batches.note(&subscribed("g"), Some(&request(3)));
        let small = |partition, offset| delivery("g", partition, offset, "1");
        let mut items: Vec<_> = (1..=4).map(|offset| small(0, offset)).collect();
        items.extend([small(1, 1), delivery("other", 1, 2, "1"), small(1, 3), small(1, 4)]);
        assert_eq!(
            frames(&mut batches, items),
            [vec![1, 2, 3], vec![4], vec![1], vec![-2], vec![3, 4]],
            "another group of the connection did not ask for such frames"
        );
        let large = format!("\"{}\"", "x".repeat(FRAME_BYTES / 2));
        let items = (1..=3).map(|offset| delivery("g", 0, offset, &large)).collect();
        assert_eq!(frames(&mut batches, items), [vec![1], vec![2], vec![3]]);
    }

    #[test]
    fn an_answer_ends_the_frame_before_it() {
        let mut batches = DeliveryBatches::default();
        batches.note(&subscribed("g"), Some(&request(10)));
        assert!(matches!(batches.take(delivery("g", 0, 1, "1"), false), (None, None)));
        let (finished, single) = batches.take(subscribed("h"), false);
        assert_eq!(offsets(&finished.unwrap()), [1]);
        assert!(single.is_some());
    }

    #[test]
    fn a_subscription_that_ended_is_forgotten() {
        let ends = [
            Item::Reply { request: 2, reply: Reply::Unsubscribed { topic: topic(), group: group("g") } },
            Item::Notice { error: BusError::TopicDeleted(topic()), group: None },
            Item::Notice {
                error: BusError::UnknownGroup { topic: topic(), group: group("g") },
                group: Some(group("g")),
            },
            // Subscribed again, without the wish.
            subscribed("g"),
        ];
        for end in ends {
            let mut batches = DeliveryBatches::default();
            batches.note(&subscribed("g"), Some(&request(10)));
            batches.note(&end, Some(&request(1)));
            assert!(batches.batch_max.is_empty());
            assert_eq!(frames(&mut batches, vec![delivery("g", 0, 1, "1")]), [vec![-1]], "{end:?}");
        }
    }
}
