//! A JSON object split into its known fields, each still the text that its author wrote.
//!
//! Splitting is the only pass over a payload. The short fields are then read from their own text, so an error can name
//! and show a wrong field, and a field that a frame does not use is never read.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use millrace_model::{Group, JSON_DEPTH_MAX, JsonText, TopicName};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::FrameError;
use crate::field::Field;

/// The largest whole number that every JSON reader represents exactly.
pub(crate) const INTEGER_MAX: u64 = 9_007_199_254_740_991;

pub(crate) struct FrameFields<'a> {
    slots: [Option<&'a RawValue>; Field::COUNT],
}

impl<'a> FrameFields<'a> {
    /// Splits a whole received document: checks its grammar and depth, and that it is an object.
    pub(crate) fn of_document(text: &'a str) -> Result<FrameFields<'a>, FrameError> {
        if !JsonText::depth_is_fine(text) {
            return Err(FrameError::bad_json(format_args!("nested more than {JSON_DEPTH_MAX} levels deep")));
        }
        serde_json::from_str(text).map_err(|error| match serde_json::from_str::<&RawValue>(text) {
            Err(broken) => FrameError::bad_json(broken),
            Ok(raw) if !raw.get().starts_with('{') => {
                FrameError::bad_frame(format!("found {}: one JSON object is expected", kind_of(raw)))
            }
            // The grammar is fine but a name of a field is not text, such as "\ud800".
            Ok(_) => FrameError::bad_frame(format!("a field's name cannot be read: {error}")),
        })
    }

    /// Splits an object inside a document whose grammar has been checked.
    pub(crate) fn of_field(field: Field, raw: &'a RawValue) -> Result<FrameFields<'a>, FrameError> {
        FrameFields::nested(raw).ok_or_else(|| FrameError::wrong(field, raw))
    }

    pub(crate) fn nested(raw: &'a RawValue) -> Option<FrameFields<'a>> {
        serde_json::from_str(raw.get()).ok()
    }

    /// Returns the field as written, `null` included.
    pub(crate) fn given(&self, field: Field) -> Option<&'a RawValue> {
        self.slots[field as usize]
    }

    /// Returns the field unless it is absent or `null`.
    pub(crate) fn get(&self, field: Field) -> Option<&'a RawValue> {
        self.given(field).filter(|raw| raw.get() != "null")
    }

    pub(crate) fn text(&self, field: Field) -> Result<Option<Cow<'a, str>>, FrameError> {
        self.get(field).map(|raw| text_of(raw).ok_or_else(|| FrameError::wrong(field, raw))).transpose()
    }

    pub(crate) fn integer(
        &self,
        field: Field,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, FrameError> {
        let Some(raw) = self.get(field) else {
            return Ok(None);
        };
        match raw.get().parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(FrameError::wrong(field, raw)),
        }
    }

    pub(crate) fn small(&self, field: Field, range: RangeInclusive<u32>) -> Result<Option<u32>, FrameError> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        Ok(self.integer(field, range)?.map(|number| number as u32))
    }

    pub(crate) fn flag(&self, field: Field) -> Result<bool, FrameError> {
        match self.get(field).map(|raw| (raw, raw.get())) {
            None | Some((_, "false")) => Ok(false),
            Some((_, "true")) => Ok(true),
            Some((raw, _)) => Err(FrameError::wrong(field, raw)),
        }
    }

    pub(crate) fn topic(&self) -> Result<TopicName, FrameError> {
        let text = needed(Field::Topic, self.text(Field::Topic)?)?;
        TopicName::new(&text).map_err(|error| FrameError::name(&error))
    }

    pub(crate) fn group(&self) -> Result<Group, FrameError> {
        let text = needed(Field::Group, self.text(Field::Group)?)?;
        Group::new(&text).map_err(|error| FrameError::name(&error))
    }
}

pub(crate) fn needed<T>(field: Field, found: Option<T>) -> Result<T, FrameError> {
    found.ok_or_else(|| FrameError::missing(field))
}

/// Returns the text of a JSON string; `None` for another kind of value and for a string with lone surrogates.
pub(crate) fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw.get()).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// Calls `take` with the elements of an array one at a time, up to the first that is refused, so that a long invalid
/// array costs no memory. Returns `None` when the value is not an array of such elements.
pub(crate) fn each_element<'a, T: Deserialize<'a>>(
    raw: &'a RawValue,
    take: impl FnMut(usize, T) -> Result<(), FrameError>,
) -> Option<Result<(), FrameError>> {
    struct Each<F, T> {
        take: F,
        error: Option<FrameError>,
        element: PhantomData<T>,
    }
    impl<'de, T: Deserialize<'de>, F: FnMut(usize, T) -> Result<(), FrameError>> Visitor<'de>
        for &mut Each<F, T>
    {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
            let mut at = 0;
            while let Some(element) = seq.next_element::<T>()? {
                if let Err(error) = (self.take)(at, element) {
                    self.error = Some(error);
                    return Err(serde::de::Error::custom("an element is wrong"));
                }
                at += 1;
            }
            Ok(())
        }
    }
    let mut each = Each { take, error: None, element: PhantomData };
    let read = serde_json::Deserializer::from_str(raw.get()).deserialize_seq(&mut each);
    match (read, each.error) {
        (Ok(()), _) => Some(Ok(())),
        (Err(_), Some(error)) => Some(Err(error)),
        (Err(_), None) => None,
    }
}

pub(crate) fn kind_of(raw: &RawValue) -> &'static str {
    match raw.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

struct Name(Option<Field>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }
            fn visit_str<E>(self, text: &str) -> Result<Name, E> {
                Ok(Name(Field::named(text)))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

impl<'de> Deserialize<'de> for FrameFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FrameFields<'de>, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = FrameFields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            /// If a name occurs twice, its last value counts, as in every JavaScript client.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FrameFields<'de>, A::Error> {
                let mut slots = [None; Field::COUNT];
                while let Some(Name(field)) = map.next_key()? {
                    match field {
                        Some(field) => slots[field as usize] = Some(map.next_value()?),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(FrameFields { slots })
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}
