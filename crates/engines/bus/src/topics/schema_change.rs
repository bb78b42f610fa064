//! Schemas of topics: published events must match the schema in force, and a new schema must match the events that are
//! there.
//!
//! A new schema is compared with retained events outside the engine's loop (`schema/retained.rs`), and publishing goes
//! on meanwhile. So that no event slips in between, every append that is under way when the comparison begins, and
//! every one that joins the topic until it ends, is compared with the new schema as well. An event that does not match
//! is published all the same, because the old schema is in force; it makes the change fail.

use std::sync::Arc;

use millrace_model::{
    Check, EventBody, Now, Op, Space, TakenId, TopicConfig, TopicKey, TopicPatch, TopicSchemaRow, keys, never,
};

use crate::bus::Bus;
use crate::interface::effect::Effect;
use crate::interface::input::{Request, Token};
use crate::interface::reply::{BusError, ReplyTo};
use crate::lifecycle::pending::PendingEffect;
use crate::topics::schema::{
    BreakingEvent, Compared, DelayedCheck, Mismatch, Quote, RetainedCheck, RetainedOutcome, SchemaStamp,
    SchemaVerdict, TopicSchema,
};
use crate::topics::topic::{Topic, TopicId};

/// A schema that is being compared with the events of its topic.
#[derive(Debug)]
pub(crate) struct CandidateSchema {
    schema: Arc<TopicSchema>,
    /// Why an event that joined the topic meanwhile does not match.
    broken_by: Option<String>,
}

/// A schema that takes force.
pub(crate) struct NewSchema {
    pub(crate) schema: Arc<TopicSchema>,
    pub(crate) forced: bool,
    pub(crate) checked: Compared,
}

/// A request with events that do not match the schema, all of which brought their ids. The request is accepted if each
/// of these events was stored before, under an older schema: a duplicate is answered like the first.
#[derive(Debug)]
pub(crate) struct DuplicateOnly {
    topic: TopicKey,
    version: u32,
    in_batch: bool,
    mismatches: Vec<Mismatch>,
    /// Checks for the commit, one for each mismatch: the event's id is taken.
    pub(crate) checks: Vec<Check>,
}

impl DuplicateOnly {
    /// Returns the error for a check that failed: its event is new.
    pub(crate) fn refusal(&self, check: usize) -> BusError {
        let mismatch = self.mismatches.get(check);
        BusError::SchemaMismatch {
            topic: self.topic.clone(),
            version: self.version,
            index: mismatch.filter(|_| self.in_batch).map(|mismatch| mismatch.index),
            why: mismatch.map(|mismatch| mismatch.why.clone()).unwrap_or_default(),
        }
    }
}

impl Topic {
    /// Compares an event with the candidate schema, if there is one. Called with every event that is appended to the
    /// topic, or delayed.
    pub(crate) fn check_candidate_schema(&mut self, body: &EventBody) {
        if let Some(candidate) = self.candidate.as_mut().filter(|candidate| candidate.broken_by.is_none()) {
            candidate.broken_by =
                candidate.schema.check(body, Quote::Nothing).err().map(|why| why.to_string());
        }
    }
}

impl Bus {
    /// Checks a request's events against the schema in force. Everything that clients publish passes here; events that
    /// the server writes itself do not. Returns `Some` if events do not match but may be duplicates of stored ones,
    /// which only the commit can tell.
    pub(crate) fn match_schema(
        &self,
        request: &Request,
        checked: Option<Box<SchemaVerdict>>,
    ) -> Result<Option<DuplicateOnly>, BusError> {
        if self.topics.schemas() == 0 {
            return Ok(None);
        }
        let (topic, events, in_batch) = match request {
            Request::Publish(publish) => (&publish.topic, std::slice::from_ref(&publish.event), false),
            Request::PublishBatch(batch) => (&batch.topic, batch.events.as_slice(), true),
            _ => return Ok(None),
        };
        let state = self.topics.named(topic);
        let Some((state, schema)) = state.and_then(|state| Some((state, state.schema.as_ref()?))) else {
            return Ok(None);
        };
        if schema.is_too_much(events) {
            let bytes = events.iter().map(|event| event.body.payload.as_str().len() as u64).sum();
            return Err(BusError::SchemaWork {
                topic: topic.clone(),
                bytes,
                max: schema.request_bytes_max(),
            });
        }
        let result = match checked {
            Some(verdict) if verdict.stamp == schema.stamp => verdict.result,
            // Nobody has checked the events, or the schema has changed since.
            _ => schema.check_all(events),
        };
        let Err(mismatches) = result else { return Ok(None) };
        let dedupe_window_ms = state.dedupe_window_ms(&self.limits);
        let ids = mismatches.iter().map(|mismatch| {
            let id = events.get(mismatch.index)?.id.clone()?;
            Some(Check::IdTaken(TakenId { topic: topic.clone(), id, dedupe_window_ms }))
        });
        let checks: Option<Vec<Check>> = ids.collect();
        let version = schema.stamp.version;
        let duplicate_only =
            DuplicateOnly { topic: topic.clone(), version, in_batch, mismatches, checks: Vec::new() };
        match checks {
            Some(checks) => Ok(Some(DuplicateOnly { checks, ..duplicate_only })),
            None => Err(duplicate_only.refusal(0)),
        }
    }

    /// Changes the configuration of an existing topic, at once or after its events were compared with a new schema.
    pub(crate) fn reshape(
        &mut self,
        now: Now,
        to: ReplyTo,
        id: TopicId,
        wanted: TopicPatch,
    ) -> Result<(), BusError> {
        let config = self.wanted_config(id, &wanted)?;
        let Some(topic) = self.topics.must(id, &self.broken) else { return Ok(()) };
        if config.schema.is_none() || config.schema == topic.config.schema {
            return self.reconfigure(now, to, id, config, None);
        }
        let schema = self.compiled(&topic.key, &config, topic.incarnation)?;
        let forced = wanted.force_schema;
        if !forced {
            return self.compare(now, to, id, wanted, schema);
        }
        self.reconfigure(
            now,
            to,
            id,
            config,
            Some(NewSchema { schema, forced, checked: Compared::default() }),
        )
    }

    fn wanted_config(&self, id: TopicId, wanted: &TopicPatch) -> Result<TopicConfig, BusError> {
        let current = self.topics.get(id).map(|topic| topic.config.clone()).unwrap_or_default();
        self.checked(current.patched(wanted).map_err(BusError::BadConfig)?)
    }

    /// Compiles the schema of a configuration, within the bounds. The schema gets its version when it takes force.
    pub(crate) fn compiled(
        &self,
        topic: &TopicKey,
        config: &TopicConfig,
        incarnation: u64,
    ) -> Result<Arc<TopicSchema>, BusError> {
        if topic.is_system() || topic.is_dead_letter() {
            return Err(BusError::NoSchemaHere(topic.clone()));
        }
        let document = config.schema.as_deref().unwrap_or(&serde_json::Value::Bool(true));
        let (bytes, limits) = (document.to_string().len(), &self.limits);
        if bytes > limits.schema_bytes_max {
            let (found, max) = (bytes as u64, limits.schema_bytes_max as u64);
            return Err(BusError::OutOfRange { what: "the number of bytes of schema", found, max });
        }
        if self.topics.schemas_bytes() + bytes > limits.schemas_bytes_total_max {
            let max = limits.schemas_bytes_total_max as u64;
            return Err(BusError::LimitReached { what: "bytes of schemas", max });
        }
        let stamp = SchemaStamp { incarnation, version: 0, tombstones: config.compact };
        let schema = TopicSchema::new(document, bytes, stamp, limits.schema_work());
        schema.map(Arc::new).map_err(BusError::BadSchema)
    }

    /// Asks the shell to compare the events of a topic with a schema.
    fn compare(
        &mut self,
        now: Now,
        to: ReplyTo,
        id: TopicId,
        wanted: TopicPatch,
        schema: Arc<TopicSchema>,
    ) -> Result<(), BusError> {
        let under_way =
            self.pending.iter().flat_map(PendingEffect::appends).filter(|append| append.topic == id);
        let broken_by =
            under_way.map(|append| schema.check(&append.body, Quote::Nothing)).find_map(Result::err);
        let Some(topic) = self.topics.must_mut(id, &self.broken) else { return Ok(()) };
        if topic.candidate.is_some() {
            return Err(BusError::SchemaChanging(topic.key.clone()));
        }
        if let Some(why) = broken_by {
            let (topic, event) = (topic.key.clone(), BreakingEvent::Arriving);
            return Err(BusError::SchemaBreaks { topic, event, why: why.to_string() });
        }
        topic.candidate = Some(CandidateSchema { schema: schema.clone(), broken_by: None });
        let key = topic.key.clone();
        let streams: Vec<_> = topic
            .bounds()
            .filter(|log| log.next > log.start)
            .map(|log| (key.stream(log.partition), log.start, log.next))
            .collect();
        let (events_max, bytes_max) =
            (self.limits.schema_check_events_max, self.limits.schema_check_bytes_max);
        let delayed = self.due.may_exist().then(|| DelayedCheck {
            topic: key.clone(),
            incarnation: topic.incarnation,
            events_max,
            bytes_max,
            rows_max: self.limits.schema_check_delayed_rows_max,
        });
        let token = self.pending.begin(PendingEffect::SchemaCheck { to, topic: key, id, wanted });
        if streams.is_empty() && delayed.is_none() {
            self.retained_checked(now, token, Some(RetainedOutcome::Match(Compared::default())));
            return Ok(());
        }
        let check = RetainedCheck { schema, streams, events_max, bytes_max, delayed };
        self.effects.push(Effect::CheckRetained { token, check });
        Ok(())
    }

    pub(crate) fn retained_checked(&mut self, now: Now, token: Token, outcome: Option<RetainedOutcome>) {
        let (to, topic, id, wanted) = match self.pending.complete(token) {
            Some(PendingEffect::SchemaCheck { to, topic, id, wanted }) => (to, topic, id, wanted),
            Some(other) => return never!(self.broken, "a comparison is the answer to {other:?}"),
            // Given up when the store failed.
            None => return,
        };
        if let Err(error) = self.conclude(now, to, topic, id, &wanted, outcome) {
            self.refuse(to, error);
        }
    }

    fn conclude(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        id: TopicId,
        wanted: &TopicPatch,
        outcome: Option<RetainedOutcome>,
    ) -> Result<(), BusError> {
        let Some(candidate) = self.topics.get_mut(id).and_then(|topic| topic.candidate.take()) else {
            return Err(BusError::TopicDeleted(topic));
        };
        let checked = match (outcome, candidate.broken_by) {
            (None, _) => return Err(BusError::EventsUnread(topic)),
            (Some(RetainedOutcome::Breaks { event, why }), _) => {
                return Err(BusError::SchemaBreaks { topic, event, why });
            }
            (Some(RetainedOutcome::Uncompared(events)), None) => {
                return Err(BusError::SchemaUncompared { topic, events });
            }
            (_, Some(why)) => {
                return Err(BusError::SchemaBreaks { topic, event: BreakingEvent::Arriving, why });
            }
            (Some(RetainedOutcome::Match(checked)), None) => checked,
        };
        let config = self.wanted_config(id, wanted)?;
        let new = NewSchema { schema: candidate.schema, forced: false, checked };
        self.reconfigure(now, to, id, config, Some(new))
    }

    /// Updates the schema in force after the configuration changed. Returns the operations to commit beside the topic's
    /// row.
    pub(crate) fn follow_config(
        &mut self,
        now: Now,
        id: TopicId,
        new: Option<(Arc<TopicSchema>, bool)>,
    ) -> Vec<Op> {
        let versions_max = self.limits.schema_versions_max.max(1);
        let mut ops = Vec::new();
        let Some(topic) = self.topics.must_mut(id, &self.broken) else { return ops };
        let before = topic.schema.clone();
        if let (Some((_, forced)), Some(schema)) = (&new, &topic.config.schema) {
            topic.schema_version = topic.schema_version.saturating_add(1);
            let first = topic.schema_version.saturating_sub(versions_max - 1).max(1);
            ops.extend(version_keys(topic, topic.schema_first..first));
            topic.schema_first = first;
            let (version, schema) = (topic.schema_version, schema.clone());
            let row = TopicSchemaRow { version, set: now.wall, forced: *forced, schema };
            let key = keys::schema_version(&topic.key, topic.incarnation, version);
            ops.push(Op::Put { space: Space::Kv, key, value: row.encode() });
        }
        let compiled = new.map(|(schema, _)| schema).or_else(|| before.clone());
        let stamp = topic.schema_stamp();
        topic.schema = topic
            .config
            .schema
            .as_ref()
            .and(compiled)
            .map(|schema| if schema.stamp == stamp { schema } else { Arc::new(schema.with(stamp)) });
        self.schema_changed(id, before.as_ref());
        ops
    }

    /// Compiles the schema of a topic from the store. A new topic has none yet.
    pub(crate) fn restore_schema(&mut self, id: TopicId) {
        let Some(topic) = self.topics.must_mut(id, &self.broken) else { return };
        let Some(document) = &topic.config.schema else { return };
        let schema = TopicSchema::stored(document, topic.schema_stamp(), self.limits.schema_work());
        topic.schema = Some(Arc::new(schema));
        self.schema_changed(id, None);
    }

    /// Forgets the schema of a deleted topic. Its versions are deleted in the commit that deletes the topic.
    pub(crate) fn forget_schema(&mut self, topic: &Topic, ops: &mut Vec<Op>) {
        ops.extend(version_keys(topic, topic.schema_first..topic.schema_version + 1));
        self.account_schema(&topic.key, topic.schema.as_ref(), None);
    }

    fn schema_changed(&mut self, id: TopicId, before: Option<&Arc<TopicSchema>>) {
        let Some(topic) = self.topics.must(id, &self.broken) else { return };
        let (key, after) = (topic.key.clone(), topic.schema.clone());
        self.account_schema(&key, before, after);
    }

    fn account_schema(
        &mut self,
        topic: &TopicKey,
        before: Option<&Arc<TopicSchema>>,
        after: Option<Arc<TopicSchema>>,
    ) {
        self.topics.account_schema(before, after.as_ref());
        if before.map(|schema| schema.stamp) != after.as_ref().map(|schema| schema.stamp) {
            self.effects.push(Effect::SchemaInForce { topic: topic.clone(), schema: after });
        }
    }
}

fn version_keys(topic: &Topic, versions: std::ops::Range<u32>) -> impl Iterator<Item = Op> {
    let (key, incarnation) = (topic.key.clone(), topic.incarnation);
    versions.filter(|version| *version > 0).map(move |version| Op::Delete {
        space: Space::Kv,
        key: keys::schema_version(&key, incarnation, version),
    })
}
