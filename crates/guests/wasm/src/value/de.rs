//! Converts values to Rust types, through serde.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, DeserializeOwned, EnumAccess, IntoDeserializer, VariantAccess, Visitor};

use super::Value;
use super::ser::ConvertError;

/// Converts a value to a Rust type. Types are strict: an integer is no float and nil is no number, because a module
/// would silently turn a wrong type into zero.
///
/// # Errors
///
/// Fails if the value's type is not the type asked for; the message names both.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, ConvertError> {
    T::deserialize(value)
}

impl<'de> IntoDeserializer<'de, ConvertError> for Value {
    type Deserializer = Value;

    fn into_deserializer(self) -> Value {
        self
    }
}

impl<'de> de::Deserializer<'de> for Value {
    type Error = ConvertError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Nil => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Int(value) => visitor.visit_i64(value),
            Value::Uint(value) => visitor.visit_u64(value),
            Value::F32(value) => visitor.visit_f32(value),
            Value::F64(value) => visitor.visit_f64(value),
            Value::Str(text) => visitor.visit_string(text),
            Value::Bin(bytes) => visitor.visit_byte_buf(bytes),
            Value::Array(items) => visit_items(items, visitor),
            Value::Map(entries) => visit_entries(entries, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Nil => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        only_float(self, visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        only_float(self, visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            // A `Vec<u8>` asks for a sequence; generation B sends bytes for the same thing.
            Value::Bin(bytes) => visitor.visit_seq(SeqDeserializer::new(bytes.into_iter())),
            value => value.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        v: V,
    ) -> Result<V::Value, ConvertError> {
        v.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        match self {
            Value::Str(_) => visitor.visit_enum(Variant { name: self, content: None }),
            Value::Map(mut entries) if entries.len() == 1 => {
                let (name, content) = entries.swap_remove(0);
                visitor.visit_enum(Variant { name, content: Some(content) })
            }
            other => {
                let expected = "the name of a variant, or a map with it as the only key";
                Err(de::Error::invalid_type(unexpected(&other), &expected))
            }
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string byte_buf unit unit_struct tuple tuple_struct
        map struct identifier ignored_any
    }
}

fn only_float<'de, V: Visitor<'de>>(value: Value, visitor: V) -> Result<V::Value, ConvertError> {
    match value {
        Value::F32(value) => visitor.visit_f32(value),
        Value::F64(value) => visitor.visit_f64(value),
        other => Err(de::Error::invalid_type(unexpected(&other), &"a float")),
    }
}

fn unexpected(value: &Value) -> de::Unexpected<'_> {
    de::Unexpected::Other(value.type_name())
}

fn visit_items<'de, V: Visitor<'de>>(items: Vec<Value>, visitor: V) -> Result<V::Value, ConvertError> {
    let mut items = SeqDeserializer::new(items.into_iter());
    let result = visitor.visit_seq(&mut items)?;
    items.end()?;
    Ok(result)
}

fn visit_entries<'de, V: Visitor<'de>>(
    entries: Vec<(Value, Value)>,
    visitor: V,
) -> Result<V::Value, ConvertError> {
    let mut entries = MapDeserializer::new(entries.into_iter());
    let result = visitor.visit_map(&mut entries)?;
    entries.end()?;
    Ok(result)
}

struct Variant {
    name: Value,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = ConvertError;
    type Variant = Content;

    fn variant_seed<S: de::DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Content), ConvertError> {
        Ok((seed.deserialize(self.name)?, Content(self.content)))
    }
}

struct Content(Option<Value>);

impl Content {
    fn required(self) -> Result<Value, ConvertError> {
        self.0.ok_or_else(|| de::Error::custom("this variant has content, but only its name was given"))
    }
}

impl<'de> VariantAccess<'de> for Content {
    type Error = ConvertError;

    fn unit_variant(self) -> Result<(), ConvertError> {
        match self.0 {
            None | Some(Value::Nil) => Ok(()),
            Some(_) => Err(de::Error::custom("this variant has no content, but some was given")),
        }
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ConvertError> {
        seed.deserialize(self.required()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, ConvertError> {
        de::Deserializer::deserialize_any(self.required()?, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        de::Deserializer::deserialize_any(self.required()?, visitor)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_f32<E>(self, v: f32) -> Result<Value, E> {
        Ok(Value::F32(v))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::F64(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::Str(v))
    }

    fn visit_bytes<E>(self, v: &[u8]) -> Result<Value, E> {
        Ok(Value::Bin(v.to_vec()))
    }

    fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Value, E> {
        Ok(Value::Bin(v))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::to_value;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Level {
        Low,
        At(u8),
        Between { from: i32, to: i32 },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Everything {
        name: String,
        ratio: f64,
        small: f32,
        bytes: Vec<u8>,
        maybe: Option<i64>,
        levels: Vec<Level>,
        big: u64,
        pair: (i32, bool),
    }

    #[test]
    fn a_type_comes_back_as_it_went() {
        let levels = vec![Level::Low, Level::At(7), Level::Between { from: -1, to: 1 }];
        let everything = Everything {
            name: "x".into(),
            ratio: 0.5,
            small: 1.5,
            bytes: vec![0, 255],
            maybe: None,
            levels,
            big: u64::MAX,
            pair: (-3, true),
        };
        let value = to_value(&everything).unwrap();
        assert_eq!(value.get("big"), Some(&Value::Uint(u64::MAX)));
        assert_eq!(from_value::<Everything>(value).unwrap(), everything);
    }

    #[test]
    fn a_value_is_its_own_value() {
        let value = Value::record([
            ("a", Value::Bin(vec![1])),
            ("b", Value::Array(vec![Value::Nil, Value::F32(1.0)])),
        ]);
        assert_eq!(to_value(&value).unwrap(), value);
        assert_eq!(from_value::<Value>(value.clone()).unwrap(), value);
    }

    #[test]
    fn bytes_become_a_list_of_numbers_on_request() {
        assert_eq!(from_value::<Vec<u8>>(Value::Bin(vec![1, 2])).unwrap(), vec![1, 2]);
    }

    #[test]
    fn types_are_strict_and_the_message_names_both() {
        let error = from_value::<f64>(Value::Int(1)).unwrap_err().to_string();
        assert!(error.contains("integer") && error.contains("float"), "{error}");
        let error = from_value::<i32>(Value::Nil).unwrap_err().to_string();
        assert!(error.contains("unit") && error.contains("i32"), "{error}");
        assert!(from_value::<i32>(Value::Int(1 << 40)).is_err());
        assert!(from_value::<(i32,)>(Value::Array(vec![Value::Int(1), Value::Int(2)])).is_err());
    }
}
