//! Translates frames and bodies into requests of the engine.

use millrace_bus as bus;
use millrace_bus::Request;
use millrace_model::{Namespace, TopicKey, TopicName};
use millrace_wire as wire;
use millrace_wire::ClientRequest;

/// Turns a connection's topic names into keys. Remembers the last one: most frames name the same topic as the frame
/// before.
#[derive(Debug)]
pub(crate) struct TopicKeys {
    namespace: Namespace,
    last: Option<(TopicName, TopicKey)>,
}

impl TopicKeys {
    pub(crate) fn of(namespace: Namespace) -> TopicKeys {
        TopicKeys { namespace, last: None }
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

/// Returns `None` for a frame that the edge answers itself. `confirm`: the client wants to be told that the request was
/// carried out.
pub(crate) fn request(topics: &mut TopicKeys, frame: ClientRequest, confirm: bool) -> Option<Request> {
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
