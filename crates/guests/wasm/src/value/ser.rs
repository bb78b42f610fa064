//! Converts Rust types to values, through serde.

use std::fmt;

use serde::ser::{self, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant};
use serde::ser::{SerializeTuple, SerializeTupleStruct, SerializeTupleVariant};

use super::Value;

/// A Rust type that has no value, or a value that is not the Rust type asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConvertError {
    message: String,
}

impl ser::Error for ConvertError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        ConvertError { message: message.to_string() }
    }
}

impl serde::de::Error for ConvertError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        ConvertError { message: message.to_string() }
    }
}

/// Returns the value of a Rust type. Structs become maps keyed by field name; a unit variant becomes its name, and any
/// other variant a map with its name as the only key.
///
/// # Errors
///
/// Fails for 128-bit integers outside the 64-bit ranges, and with any error of the type's own `Serialize`.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, ConvertError> {
    value.serialize(ToValue)
}

struct ToValue;

/// Collects the elements of an array, under a variant's name if it has one.
struct Items {
    variant: Option<&'static str>,
    items: Vec<Value>,
}

/// Collects the entries of a map, under a variant's name if it has one.
struct Entries {
    variant: Option<&'static str>,
    entries: Vec<(Value, Value)>,
    key: Option<Value>,
}

fn items(variant: Option<&'static str>) -> Result<Items, ConvertError> {
    Ok(Items { variant, items: Vec::new() })
}

fn entries(variant: Option<&'static str>) -> Result<Entries, ConvertError> {
    Ok(Entries { variant, entries: Vec::new(), key: None })
}

fn under(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(name) => Value::record([(name, value)]),
        None => value,
    }
}

impl ser::Serializer for ToValue {
    type Ok = Value;
    type Error = ConvertError;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Entries;
    type SerializeStruct = Entries;
    type SerializeStructVariant = Entries;

    fn serialize_bool(self, v: bool) -> Result<Value, ConvertError> {
        Ok(Value::Bool(v))
    }

    fn serialize_i8(self, v: i8) -> Result<Value, ConvertError> {
        Ok(Value::Int(i64::from(v)))
    }

    fn serialize_i16(self, v: i16) -> Result<Value, ConvertError> {
        Ok(Value::Int(i64::from(v)))
    }

    fn serialize_i32(self, v: i32) -> Result<Value, ConvertError> {
        Ok(Value::Int(i64::from(v)))
    }

    fn serialize_i64(self, v: i64) -> Result<Value, ConvertError> {
        Ok(Value::Int(v))
    }

    fn serialize_u8(self, v: u8) -> Result<Value, ConvertError> {
        Ok(Value::Int(i64::from(v)))
    }

    fn serialize_u16(self, v: u16) -> Result<Value, ConvertError> {
        Ok(Value::Int(i64::from(v)))
    }

    fn serialize_u32(self, v: u32) -> Result<Value, ConvertError> {
        Ok(Value::Int(i64::from(v)))
    }

    fn serialize_u64(self, v: u64) -> Result<Value, ConvertError> {
        Ok(Value::from(v))
    }

    fn serialize_f32(self, v: f32) -> Result<Value, ConvertError> {
        Ok(Value::F32(v))
    }

    fn serialize_f64(self, v: f64) -> Result<Value, ConvertError> {
        Ok(Value::F64(v))
    }

    fn serialize_char(self, v: char) -> Result<Value, ConvertError> {
        Ok(Value::Str(v.to_string()))
    }

    fn serialize_str(self, v: &str) -> Result<Value, ConvertError> {
        Ok(Value::from(v))
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<Value, ConvertError> {
        Ok(Value::Bin(v.to_vec()))
    }

    fn serialize_none(self) -> Result<Value, ConvertError> {
        Ok(Value::Nil)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, ConvertError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, ConvertError> {
        Ok(Value::Nil)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<Value, ConvertError> {
        Ok(Value::Nil)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, ConvertError> {
        Ok(Value::from(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        v: &T,
    ) -> Result<Value, ConvertError> {
        v.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, ConvertError> {
        Ok(under(Some(variant), value.serialize(self)?))
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Items, ConvertError> {
        items(None)
    }

    fn serialize_tuple(self, _len: usize) -> Result<Items, ConvertError> {
        items(None)
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<Items, ConvertError> {
        items(None)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Items, ConvertError> {
        items(Some(variant))
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Entries, ConvertError> {
        entries(None)
    }

    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Entries, ConvertError> {
        entries(None)
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Entries, ConvertError> {
        entries(Some(variant))
    }
}

impl Items {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
        self.items.push(to_value(value)?);
        Ok(())
    }

    fn finish(self) -> Result<Value, ConvertError> {
        Ok(under(self.variant, Value::Array(self.items)))
    }
}

impl Entries {
    fn push<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), ConvertError> {
        self.entries.push((Value::from(key), to_value(value)?));
        Ok(())
    }

    fn finish(self) -> Result<Value, ConvertError> {
        Ok(under(self.variant, Value::Map(self.entries)))
    }
}

/// The traits of sequences differ only in the name of their method.
macro_rules! collects_items {
    ($($interface:ident :: $method:ident),*) => {$(
        impl $interface for Items {
            type Ok = Value;
            type Error = ConvertError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
                self.push(value)
            }

            fn end(self) -> Result<Value, ConvertError> {
                self.finish()
            }
        }
    )*};
}

macro_rules! collects_fields {
    ($($interface:ident),*) => {$(
        impl $interface for Entries {
            type Ok = Value;
            type Error = ConvertError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), ConvertError> {
                self.push(key, value)
            }

            fn end(self) -> Result<Value, ConvertError> {
                self.finish()
            }
        }
    )*};
}

collects_items!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);
collects_fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Entries {
    type Ok = Value;
    type Error = ConvertError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ConvertError> {
        self.key = Some(to_value(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
        let key = self.key.take().ok_or_else(|| ser::Error::custom("a map's value came before its key"))?;
        self.entries.push((key, to_value(value)?));
        Ok(())
    }

    fn end(self) -> Result<Value, ConvertError> {
        self.finish()
    }
}

impl Serialize for Value {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Nil => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(value) => serializer.serialize_i64(*value),
            Value::Uint(value) => serializer.serialize_u64(*value),
            Value::F32(value) => serializer.serialize_f32(*value),
            Value::F64(value) => serializer.serialize_f64(*value),
            Value::Str(text) => serializer.serialize_str(text),
            Value::Bin(bytes) => serializer.serialize_bytes(bytes),
            Value::Array(items) => serializer.collect_seq(items),
            Value::Map(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}
