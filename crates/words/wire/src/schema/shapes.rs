//! Schemas of the bodies that are read and written by hand.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::envelope::Envelope;
use crate::field::Field;
use crate::http::{EventsPage, PublishBody, Replay, Seek, TopicBody};
use crate::schema::{field, object, schema};
use crate::server_frame::{Published, PublishedBatch};

macro_rules! shapes {
    ($($type:ident $value:expr;)*) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schema($value)
            }
        })*
    };
}

/// An event as its author writes it.
#[derive(Clone, Copy, Debug)]
pub struct EventIn;

/// An event of an array, which cannot be delayed.
#[derive(Clone, Copy, Debug)]
pub struct BatchEvent;

/// The body of a PATCH: an absent field stays as it is, a field that is `null` is reset to its default.
#[derive(Clone, Copy, Debug)]
pub struct TopicPatchBody;

/// The settings of a topic in an answer: only those that were set.
pub(crate) struct TopicSettings;

/// The answer to a publish: of one event, or of an array.
#[derive(Clone, Copy, Debug)]
pub struct Done;

shapes! {
    EventIn event();
    BatchEvent batch_event();
    TopicPatchBody topic_patch();
    TopicSettings topic_settings();
    TopicBody topic_body();
    Envelope envelope();
    EventsPage events_page();
    Published published();
    PublishedBatch published_batch();
    Replay object(&[], &[Field::Partition, Field::Offset, Field::Limit]);
    Seek object(&[Field::From], &[Field::Partition, Field::DryRun]);
}

impl JsonSchema for PublishBody {
    fn schema_name() -> Cow<'static, str> {
        "PublishBody".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (one, each) = (generator.subschema_for::<EventIn>(), generator.subschema_for::<BatchEvent>());
        schema(json!({"oneOf": [one, {"type": "array", "items": each, "minItems": 1}]}))
    }
}

impl JsonSchema for Done {
    fn schema_name() -> Cow<'static, str> {
        "Done".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Published>();
        let many = generator.subschema_for::<PublishedBatch>();
        schema(json!({"oneOf": [one, many]}))
    }
}

/// Fields that the author of an event may write beside its payload, in a batch or alone.
const EVENT_FIELDS: &[Field] = &[Field::Key, Field::Headers, Field::Id, Field::Priority];
const DELAYS: &[Field] = &[Field::DelayMs, Field::DeliverAt];

const SETTINGS: &[Field] = &[
    Field::RetentionMs,
    Field::RetentionBytes,
    Field::MaxAttempts,
    Field::AckTimeoutMs,
    Field::DedupeWindowMs,
    Field::Durability,
    Field::Compact,
    Field::TopicAckMode,
    Field::Sticky,
    Field::PublishAcl,
    Field::SubscribeAcl,
    Field::Schema,
    Field::GroupAcl,
];

/// `delay_ms` and `deliver_at` exclude each other.
fn without_both_delays(mut shape: Value) -> Value {
    if let Some(shape) = shape.as_object_mut() {
        shape.insert("not".to_owned(), json!({"required": ["delay_ms", "deliver_at"]}));
    }
    shape
}

fn event() -> Value {
    without_both_delays(object(&[Field::Payload], &[EVENT_FIELDS, DELAYS].concat()))
}

pub(super) fn batch_event() -> Value {
    object(&[Field::Payload], EVENT_FIELDS)
}

pub(super) fn envelope() -> Value {
    let needs = [Field::Id, Field::Ts, Field::Topic, Field::Partition, Field::Offset, Field::Payload];
    object(&needs, &[Field::Key, Field::Headers, Field::Priority, Field::PayloadSha256, Field::Attempts])
}

pub(super) fn from() -> Value {
    let mut from = object(&[Field::Kind], &[Field::Value, Field::Reset]);
    if let Some(from) = from.as_object_mut() {
        from.insert("if".to_owned(), json!({"properties": {"kind": {"enum": ["offset", "timestamp"]}}}));
        from.insert("then".to_owned(), json!({"required": ["value"]}));
    }
    from
}

fn topic_body() -> Value {
    let mut body = object(&[Field::Topic], SETTINGS);
    body["properties"]["partitions"] = field::partition_count();
    body["properties"]["durability"] = field::topic_durability();
    body
}

fn topic_patch() -> Value {
    let mut body = object(&[], SETTINGS);
    if let Some(properties) = body["properties"].as_object_mut() {
        properties.insert("partitions".to_owned(), field::partition_count());
        properties.insert("durability".to_owned(), field::topic_durability());
        for setting in properties.values_mut() {
            *setting = json!({"anyOf": [setting.take(), {"type": "null"}]});
        }
    }
    body
}

fn topic_settings() -> Value {
    let mut settings = object(&[], SETTINGS);
    settings["properties"]["partitions"] = field::partition_count();
    settings["required"] = json!(["partitions"]);
    settings
}

fn events_page() -> Value {
    let mut page = object(&[Field::Topic, Field::Partition, Field::Events, Field::Next], &[]);
    page["properties"]["events"] = json!({"type": "array", "items": envelope()});
    let about = "Payloads, keys and header values are withheld from the caller.";
    page["properties"]["withheld"] = json!({"type": "boolean", "description": about});
    page
}

fn published() -> Value {
    let needs = [Field::Type, Field::Topic, Field::Id, Field::Durability];
    let mut shape = object(&needs, &[Field::Partition, Field::Offset, Field::Due]);
    shape["properties"]["type"] = json!({"const": "PUBLISHED"});
    shape["oneOf"] = json!([{"required": ["partition", "offset"]}, {"required": ["due"]}]);
    shape
}

fn published_batch() -> Value {
    let mut shape = object(&[Field::Type, Field::Topic, Field::Offsets, Field::Durability], &[]);
    shape["properties"]["type"] = json!({"const": "PUBLISHED"});
    shape
}
