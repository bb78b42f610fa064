//! The schemas in force, for the edges. Each edge checks its events on its own thread before it hands them over, so
//! that the one thread that decides does not read payloads.
//!
//! The engine still decides: it accepts a verdict only if the schema is still the one in force, and otherwise checks
//! the events itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millrace_bus::{Request, SchemaVerdict, TopicSchema};
use millrace_model::{NewEvent, TopicKey};
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Bytes of payloads, and bytes times values of the schema, that are checked on the caller's thread: well below a
/// millisecond with an ordinary schema.
const INLINE_BYTES_MAX: usize = 32 << 10;
const INLINE_WORK_MAX: u64 = 1 << 20;
/// Longer checks that run at the same time; others wait.
const LONG_CHECKS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Schemas {
    /// Whether there is any schema: most servers have none, and then nothing is looked up.
    any: AtomicBool,
    by_topic: RwLock<HashMap<TopicKey, Arc<TopicSchema>>>,
    long_checks: Semaphore,
}

impl Default for Schemas {
    fn default() -> Schemas {
        Schemas {
            any: AtomicBool::default(),
            by_topic: RwLock::default(),
            long_checks: Semaphore::new(LONG_CHECKS_MAX),
        }
    }
}

impl Schemas {
    pub(crate) fn set(&self, topic: TopicKey, schema: Option<Arc<TopicSchema>>) {
        let mut by_topic = self.by_topic.write();
        match schema {
            Some(schema) => by_topic.insert(topic, schema),
            None => by_topic.remove(&topic),
        };
        self.any.store(!by_topic.is_empty(), Relaxed);
    }

    /// Returns `None` if the topic has no schema, if the engine has not announced it yet, or if the engine will refuse
    /// the request without reading it. A long check runs on a thread that may block, so that no other task on the
    /// caller's thread waits for it.
    pub(crate) async fn check(&self, request: &Request) -> Option<Box<SchemaVerdict>> {
        let (schema, events) = self.concerned(request)?;
        if schema.is_too_much(events) {
            return None;
        }
        let bytes: usize = events.iter().map(|event| event.body.payload.as_str().len()).sum();
        let is_short = bytes <= INLINE_BYTES_MAX && schema.work(events) <= INLINE_WORK_MAX;
        if is_short || Handle::try_current().is_err() {
            return Some(verdict(&schema, events));
        }
        let _place = self.long_checks.acquire().await.ok()?;
        let events = events.to_vec();
        match tokio::task::spawn_blocking(move || verdict(&schema, &events)).await {
            Ok(verdict) => Some(verdict),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The tokio runtime is shutting down.
                Err(_) => None,
            },
        }
    }

    /// The schema of the topic that a request publishes to, and its events.
    fn concerned<'a>(&self, request: &'a Request) -> Option<(Arc<TopicSchema>, &'a [NewEvent])> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let (topic, events) = match request {
            Request::Publish(publish) => (&publish.topic, std::slice::from_ref(&publish.event)),
            Request::PublishBatch(batch) => (&batch.topic, batch.events.as_slice()),
            _ => return None,
        };
        // The lock is released before the check.
        let schema = self.by_topic.read().get(topic).cloned()?;
        Some((schema, events))
    }
}

fn verdict(schema: &TopicSchema, events: &[NewEvent]) -> Box<SchemaVerdict> {
    Box::new(SchemaVerdict { stamp: schema.stamp, result: schema.check_all(events) })
}

#[cfg(test)]
mod tests {
    use millrace_bus::{Bus, BusLimits, Effect, Input, Publish, ReplyTo, Snapshot};
    use millrace_model::{EventBody, JsonText, Mono, NewEvent, Now, Requester, Timestamp, TopicConfig};

    use super::*;

    fn topic() -> TopicKey {
        TopicKey::parse("default/t").unwrap()
    }

    fn publish(payload: &str) -> Request {
        let body = Arc::new(EventBody::of(JsonText::parse(payload).unwrap()));
        let event = NewEvent { id: None, body };
        Request::Publish(Publish { topic: topic(), event, deliver_at: None })
    }

    /// Sets the schemas that an engine announces after these requests.
    fn told(schemas: &Schemas, requests: Vec<Request>) {
        let now = Now { mono: Mono(0), wall: Timestamp(1), ..Now::default() };
        let mut bus = Bus::restore(BusLimits::default(), Snapshot::default(), now).unwrap();
        for request in requests {
            bus.handle(
                now,
                Input::Request { to: ReplyTo::Nobody, by: Requester::Trusted, request, checked: None },
            );
            for effect in bus.drain() {
                if let Effect::SchemaInForce { topic, schema } = effect {
                    schemas.set(topic, schema);
                }
            }
        }
    }

    fn create() -> Request {
        let config = TopicConfig { schema: Some(Arc::new(false.into())), ..TopicConfig::default() };
        Request::CreateTopic { topic: topic(), settings: config.into(), only_new: false }
    }

    #[tokio::test]
    async fn edges_check_against_the_schema_the_engine_told_them() {
        let schemas = Schemas::default();
        assert_eq!(schemas.check(&publish("1")).await, None, "there is none");
        told(&schemas, vec![create()]);
        let verdict = schemas.check(&publish("null")).await.expect("a verdict");
        assert!(verdict.result.is_err());
        told(&schemas, vec![create(), Request::DeleteTopic { topic: topic() }]);
        assert_eq!(schemas.check(&publish("null")).await, None);
    }

    /// While no permit for a long check is free, the check must wait, which shows that it does not run on the caller's
    /// thread.
    #[tokio::test]
    async fn a_long_check_does_not_run_on_the_callers_thread() {
        let schemas = Schemas::default();
        told(&schemas, vec![create()]);
        let places = schemas.long_checks.acquire_many(LONG_CHECKS_MAX as u32).await.unwrap();
        let long = publish(&format!("\"{}\"", "x".repeat(INLINE_BYTES_MAX)));
        let mut waiting = std::pin::pin!(schemas.check(&long));
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(context).is_pending());
        assert!(schemas.check(&publish("1")).await.is_some(), "a short one needs no place");
        drop(places);
        assert!(waiting.await.is_some_and(|verdict| verdict.result.is_err()));
    }
}
