//! The door in: frames and bodies become requests of the engine.

use millrace_bus as bus;
use millrace_bus::Request;
use millrace_model::{Namespace, TopicKey, TopicName};
use millrace_wire as wire;
use millrace_wire::ClientRequest;

/// Turns a connection's topic names into keys. Most frames of a connection name the same topic as the one before.
#[derive(Debug)]
pub(crate) struct Topics {
    namespace: Namespace,
    last: Option<(TopicName, TopicKey)>,
}

impl Topics {
    pub(crate) fn of(namespace: Namespace) -> Topics {
        Topics { namespace, last: None }
    }

    fn key(&mut self, name: TopicName) -> TopicKey {
        if let Some((last, key)) = &self.last
            && *last == name
        {
            return key.clone();
        }
        let key = TopicKey::new(&self.namespace, &name);
        self.last = Some((name, key.clone()));
        key
    }
}

/// `None` for what the edge answers itself. `confirm`: the client wants to hear that it is done.
pub(crate) fn request(topics: &mut Topics, frame: ClientRequest, confirm: bool) -> Option<Request> {
    Some(match frame {
        ClientRequest::Publish(publish) => Request::Publish(bus::Publish {
            topic: topics.key(publish.topic),
            event: publish.event,
            deliver_at: publish.deliver_at,
        }),
        ClientRequest::PublishBatch(batch) => {
            Request::PublishBatch(bus::PublishBatch { topic: topics.key(batch.topic), events: batch.events })
        }
        ClientRequest::Subscribe(subscribe) => Request::Subscribe(bus::Subscribe {
            topic: topics.key(subscribe.topic),
            group: subscribe.group,
            from: subscribe.from.map(from),
            reset: subscribe.reset,
            max_inflight: subscribe.max_inflight,
            ack_mode: subscribe.ack_mode,
            sticky: subscribe.sticky,
            filter: subscribe.filter,
        }),
        ClientRequest::Unsubscribe(unsubscribe) => {
            Request::Unsubscribe { topic: topics.key(unsubscribe.topic), group: unsubscribe.group }
        }
        ClientRequest::Ack(ack) => Request::Ack(bus::Ack {
            topic: topics.key(ack.topic),
            partition: ack.partition,
            group: ack.group,
            offset: ack.offset,
            confirm,
        }),
        ClientRequest::Nack(nack) => Request::Nack(bus::Nack {
            topic: topics.key(nack.delivery.topic),
            partition: nack.delivery.partition,
            group: nack.delivery.group,
            offset: nack.delivery.offset,
            reason: nack.reason,
            delay_ms: nack.delay_ms,
            confirm,
        }),
        ClientRequest::Flow(flow) => Request::Flow { credits: flow.credits },
        ClientRequest::Ping | ClientRequest::Auth(_) => return None,
    })
}

pub(crate) fn from(start: wire::StartFrom) -> bus::From {
    match start {
        wire::StartFrom::Latest => bus::From::Latest,
        wire::StartFrom::Earliest => bus::From::Earliest,
        wire::StartFrom::Offset(offset) => bus::From::Offset(offset),
        wire::StartFrom::Timestamp(ts) => bus::From::Timestamp(ts),
    }
}
