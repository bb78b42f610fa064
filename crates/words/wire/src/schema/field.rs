//! The JSON Schema of each field of the protocol.

use millrace_model::{Durability, PARTITIONS_MAX};
use serde_json::{Value, json};

use crate::client_frame::BATCH_MAX;
use crate::field::Field;
use crate::fields::INTEGER_MAX;
use crate::rid::RID_BYTES_MAX;

/// A name: segments of its alphabet, with single dots between them.
const NAME_PATTERN: &str = "^[A-Za-z0-9_:-]+(\\.[A-Za-z0-9_:-]+)*$";

fn whole(min: i64, max: u64) -> Value {
    json!({"type": "integer", "minimum": min, "maximum": max})
}

fn name(bytes_max: u32) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": bytes_max, "pattern": NAME_PATTERN})
}

impl Field {
    /// Returns the field's schema, described in the words that errors use.
    pub(crate) fn schema(self) -> Value {
        let mut schema = self.bare_schema();
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".to_owned(), self.expected().into());
        }
        schema
    }

    fn bare_schema(self) -> Value {
        match self {
            Field::PayloadSha256 => json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
            Field::Type | Field::Op | Field::Message | Field::Reason | Field::Token | Field::Key => {
                json!({"type": "string"})
            }
            Field::Leader => json!({"type": ["string", "null"]}),
            Field::Rid => {
                json!({"anyOf": [{"type": "string", "maxLength": RID_BYTES_MAX}, {"type": "integer"}]})
            }
            // Dead-letter topics are four bytes longer than the others.
            Field::Topic | Field::Group => name(255),
            Field::Partition => whole(0, u64::from(u32::MAX)),
            Field::Offset
            | Field::Next
            | Field::Value
            | Field::Credits
            | Field::Ts
            | Field::Due
            | Field::DeliverAt
            | Field::DelayMs
            | Field::DedupeWindowMs => whole(0, INTEGER_MAX),
            Field::RetentionMs | Field::RetentionBytes | Field::AckTimeoutMs => whole(1, INTEGER_MAX),
            Field::MaxAttempts | Field::MaxInflight | Field::Attempts => whole(1, u64::from(u32::MAX)),
            Field::BatchMax => whole(1, u64::from(BATCH_MAX)),
            Field::Limit => whole(1, 10_000),
            Field::Priority => whole(i64::from(i32::MIN), i32::MAX as u64),
            Field::Payload => json!({}),
            Field::Schema => json!({"type": ["object", "boolean"]}),
            Field::Headers => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            Field::Header => {
                json!({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2})
            }
            Field::Id => json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}),
            Field::Events => json!({"type": "array", "items": super::shapes::batch_event()}),
            Field::From => super::shapes::from(),
            Field::Kind => json!({"type": "string", "enum": ["latest", "earliest", "offset", "timestamp"]}),
            Field::Reset | Field::Compact | Field::Sticky | Field::DryRun => json!({"type": "boolean"}),
            Field::AckMode | Field::TopicAckMode => {
                json!({"type": "string", "enum": ["cumulative", "individual"]})
            }
            Field::Filter => super::object(&[], &[Field::Key, Field::Header]),
            Field::Durability => {
                json!({"type": "string", "enum": Durability::ALL.map(Durability::as_str)})
            }
            Field::Offsets => json!({"type": "array", "items": {
                "type": "array", "prefixItems": [whole(0, u64::from(u32::MAX)), whole(1, INTEGER_MAX)],
                "minItems": 2, "maxItems": 2,
            }}),
            Field::Partitions => {
                json!({"type": "array", "items": super::object(&[Field::Partition, Field::Next], &[])})
            }
            Field::Envelope => super::shapes::envelope(),
            Field::Envelopes => json!({"type": "array", "items": super::shapes::envelope()}),
            Field::Code => super::codes(),
            Field::PublishAcl | Field::SubscribeAcl => {
                json!({"type": "array", "items": {"type": "string"}, "maxItems": 256})
            }
            Field::GroupAcl => {
                let list = json!({"type": ["array", "null"], "items": {"type": "string"}, "maxItems": 256});
                json!({"type": "object", "additionalProperties": list, "maxProperties": 256})
            }
        }
    }
}

/// The levels that a topic may ask for.
pub(super) fn topic_durability() -> Value {
    json!({"type": "string", "enum": ["fsync", "os", "memory"]})
}

/// `partitions` of a topic's settings is a number, unlike the field of the same name in OK.
pub(super) fn partition_count() -> Value {
    whole(1, u64::from(PARTITIONS_MAX))
}
