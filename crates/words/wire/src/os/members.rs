//! The members of a message and of its metadata, each still the text that its author wrote.
//!
//! Names are compared as text, so `"\u0069d"` is `id`. If a name occurs twice, its last value counts, as in every
//! JavaScript client. Nothing here recurses: serde skips values without counting levels.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::fields::text_of;

/// Members of the message. All other members are dropped.
#[derive(Default)]
pub(super) struct OsMembers<'a> {
    pub(super) kind: Option<&'a RawValue>,
    pub(super) ty: Option<&'a RawValue>,
    pub(super) data: Option<&'a RawValue>,
    pub(super) metadata: Option<&'a RawValue>,
}

/// Members of `metadata`. All other members are kept in `other`.
#[derive(Default)]
pub(super) struct MetadataMembers<'a> {
    pub(super) id: Option<&'a RawValue>,
    pub(super) timestamp: Option<&'a RawValue>,
    pub(super) correlation: Option<&'a RawValue>,
    pub(super) causation: Option<&'a RawValue>,
    /// Unknown members as text: `"a":1,"b":[2]`.
    pub(super) other: String,
}

impl<'de> Deserialize<'de> for OsMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        each_member(deserializer, |members: &mut OsMembers<'de>, name, value| {
            match name_of(name).as_deref() {
                Some("kind") => members.kind = Some(value),
                Some("type") => members.ty = Some(value),
                Some("data") => members.data = Some(value),
                Some("metadata") => members.metadata = Some(value),
                _ => {}
            }
        })
    }
}

impl<'de> Deserialize<'de> for MetadataMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        each_member(deserializer, |lineage: &mut MetadataMembers<'de>, name, value| {
            match name_of(name).as_deref() {
                Some("id") => lineage.id = Some(value),
                Some("timestamp") => lineage.timestamp = Some(value),
                Some("correlation") => lineage.correlation = Some(value),
                Some("causation") => lineage.causation = Some(value),
                _ => {
                    if !lineage.other.is_empty() {
                        lineage.other.push(',');
                    }
                    lineage.other.push_str(name.get());
                    lineage.other.push(':');
                    lineage.other.push_str(value.get());
                }
            }
        })
    }
}

/// Returns `None` for a name that is not text, such as `"\ud800"`: it cannot be a known name.
fn name_of(name: &RawValue) -> Option<Cow<'_, str>> {
    text_of(name)
}

fn each_member<'de, D, T, F>(deserializer: D, take: F) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default,
    F: FnMut(&mut T, &'de RawValue, &'de RawValue),
{
    struct Each<T, F>(T, F);
    impl<'de, T, F: FnMut(&mut T, &'de RawValue, &'de RawValue)> Visitor<'de> for Each<T, F> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
            while let Some((name, value)) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
                (self.1)(&mut self.0, name, value);
            }
            Ok(self.0)
        }
    }
    deserializer.deserialize_map(Each(T::default(), take))
}
