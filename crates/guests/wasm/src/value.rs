//! The values that cross the boundary between a module and its host.

mod de;
mod json;
mod ser;

use std::fmt;

pub use self::de::from_value;
pub use self::ser::{ConvertError, to_value};

/// A value as a module sends or receives it. Both wire generations carry the same values.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// Absent: a void result, or an operation that carries nothing.
    #[default]
    Nil,
    Bool(bool),
    Int(i64),
    /// Only integers above `i64::MAX`; smaller ones are always `Int`, so that equal numbers are equal values.
    Uint(u64),
    F32(f32),
    F64(f64),
    Str(String),
    Bin(Vec<u8>),
    Array(Vec<Value>),
    /// Entries in the order of their encoding. Modules write string keys.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// Builds a map with string keys.
    pub fn record<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
        Value::Map(fields.into_iter().map(|(name, value)| (Value::from(name), value)).collect())
    }

    /// Returns the value of a map's first entry with this string key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the number of a float; integers are not floats here, as modules do not convert them either.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::F32(value) => Some(f64::from(*value)),
            Value::F64(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bin(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn is_nil(&self) -> bool {
        *self == Value::Nil
    }

    /// Bytes of memory that the value takes, about.
    pub fn size_bytes(&self) -> usize {
        let content = match self {
            Value::Str(text) => text.len(),
            Value::Bin(bytes) => bytes.len(),
            Value::Array(items) => items.iter().map(Value::size_bytes).sum(),
            Value::Map(entries) => {
                entries.iter().map(|(key, value)| key.size_bytes() + value.size_bytes()).sum()
            }
            Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::F32(_) | Value::F64(_) => 0,
        };
        size_of::<Value>() + content
    }

    /// The name of the value's type, for messages about values of the wrong type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "nil",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Uint(_) => "integer",
            Value::F32(_) | Value::F64(_) => "float",
            Value::Str(_) => "string",
            Value::Bin(_) => "bytes",
            Value::Array(_) => "array",
            Value::Map(_) => "map",
        }
    }
}

/// Prints the value as JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

impl From<()> for Value {
    fn from((): ()) -> Value {
        Value::Nil
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::Int(i64::from(value))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Int(i64::from(value))
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        i64::try_from(value).map_or(Value::Uint(value), Value::Int)
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Value {
        Value::F32(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::F64(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Str(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Str(value)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::Array(items)
    }
}
