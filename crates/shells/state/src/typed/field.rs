//! A field of an entity or relation by name, with the type of its owner and of its value: filters, orders and sums are
//! made of fields. An operand that does not fit the field's type does not compile.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::Value;

use super::filter::{Filter, Node, TextMatch, whole};

/// The field of `T` that holds a `V`. The derives make one for each field: `Payment::fields().status`, or the argument
/// of the closures that queries take.
pub struct Field<T, V> {
    name: &'static str,
    types: PhantomData<fn() -> (T, V)>,
}

/// A field to sort rows by.
#[derive(Debug)]
pub struct Order<T> {
    pub(crate) field: &'static str,
    pub(crate) descending: bool,
    owner: PhantomData<fn(T)>,
}

/// A value with which a field of type `V` may be compared: a `V` or a reference to one, text for a `String`, and a
/// plain value for an `Option`.
#[diagnostic::on_unimplemented(message = "a field of type `{V}` cannot be compared with `{Self}`")]
pub trait Operand<V> {
    fn to_json(&self) -> Result<Value, serde_json::Error>;
}

/// A type whose JSON has an order: numbers, text, booleans. Implement it for a type of your own if its JSON sorts well.
#[diagnostic::on_unimplemented(
    message = "fields of type `{Self}` have no order",
    note = "if its JSON is a number or sorts well as text: impl millrace::OrderedField for it"
)]
pub trait OrderedField {}

/// A type whose JSON is text.
#[diagnostic::on_unimplemented(message = "fields of type `{Self}` are not text")]
pub trait TextField {}

/// A type whose values can be added up.
#[diagnostic::on_unimplemented(message = "fields of type `{Self}` are not numbers")]
pub trait NumberField {
    /// Wide enough that a sum of whole numbers is exact.
    type Sum: Default;

    fn add(sum: &mut Self::Sum, value: &Value);
}

impl<T, V> Field<T, V> {
    /// Makes a field by its name in JSON. The derives call this; a field with a wrong name is always absent.
    pub const fn new(name: &'static str) -> Field<T, V> {
        Field { name, types: PhantomData }
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    fn filter(self, operand: &impl Operand<V>, node: impl FnOnce(Value) -> Node) -> Filter<T> {
        Filter::new(match operand.to_json() {
            Ok(value) => node(value),
            Err(error) => Node::Unwritable { field: self.name, reason: error.to_string() },
        })
    }
}

// Operands are taken by value so that literals and owned values are written alike.
#[allow(clippy::needless_pass_by_value)]
impl<T, V> Field<T, V> {
    pub fn eq(self, value: impl Operand<V>) -> Filter<T> {
        self.filter(&value, |value| Node::Equal { field: self.name, value })
    }

    pub fn ne(self, value: impl Operand<V>) -> Filter<T> {
        self.eq(value).not()
    }

    pub fn in_<O: Operand<V>>(self, values: impl IntoIterator<Item = O>) -> Filter<T> {
        let values: Result<Vec<Value>, _> = values.into_iter().map(|value| value.to_json()).collect();
        Filter::new(match values {
            Ok(values) => Node::OneOf { field: self.name, values },
            Err(error) => Node::Unwritable { field: self.name, reason: error.to_string() },
        })
    }
}

#[allow(clippy::needless_pass_by_value)]
impl<T, V: OrderedField> Field<T, V> {
    fn ordered(self, value: &impl Operand<V>, any_of: &'static [Ordering]) -> Filter<T> {
        self.filter(value, |value| Node::Ordered { field: self.name, value, any_of })
    }

    pub fn lt(self, value: impl Operand<V>) -> Filter<T> {
        self.ordered(&value, &[Ordering::Less])
    }

    pub fn le(self, value: impl Operand<V>) -> Filter<T> {
        self.ordered(&value, &[Ordering::Less, Ordering::Equal])
    }

    pub fn gt(self, value: impl Operand<V>) -> Filter<T> {
        self.ordered(&value, &[Ordering::Greater])
    }

    pub fn ge(self, value: impl Operand<V>) -> Filter<T> {
        self.ordered(&value, &[Ordering::Greater, Ordering::Equal])
    }

    pub fn asc(self) -> Order<T> {
        Order { field: self.name, descending: false, owner: PhantomData }
    }

    pub fn desc(self) -> Order<T> {
        Order { field: self.name, descending: true, owner: PhantomData }
    }
}

/// Comparisons of text: case-sensitive, and no character is special.
impl<T, V: TextField> Field<T, V> {
    fn text(self, text: impl Into<String>, how: TextMatch) -> Filter<T> {
        Filter::new(Node::Text { field: self.name, text: text.into(), how })
    }

    pub fn starts_with(self, text: impl Into<String>) -> Filter<T> {
        self.text(text, TextMatch::StartsWith)
    }

    pub fn ends_with(self, text: impl Into<String>) -> Filter<T> {
        self.text(text, TextMatch::EndsWith)
    }

    pub fn contains(self, text: impl Into<String>) -> Filter<T> {
        self.text(text, TextMatch::Contains)
    }
}

impl<T, V> Field<T, Option<V>> {
    pub fn is_null(self) -> Filter<T> {
        Filter::new(Node::Null { field: self.name })
    }

    pub fn is_not_null(self) -> Filter<T> {
        self.is_null().not()
    }
}

impl<V: Serialize> Operand<V> for V {
    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

impl<V: Serialize> Operand<V> for &V {
    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

impl<V: Serialize> Operand<Option<V>> for V {
    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

macro_rules! text {
    ($($type:ty),*) => {$(
        impl TextField for $type {}
        impl TextField for Option<$type> {}
        impl OrderedField for $type {}
        impl Operand<$type> for &str {
            fn to_json(&self) -> Result<Value, serde_json::Error> {
                Ok(Value::from(*self))
            }
        }
        impl Operand<Option<$type>> for &str {
            fn to_json(&self) -> Result<Value, serde_json::Error> {
                Ok(Value::from(*self))
            }
        }
    )*};
}

macro_rules! numbers {
    ($sum:ty, $add:expr, $($type:ty),*) => {$(
        impl OrderedField for $type {}
        impl NumberField for $type {
            type Sum = $sum;
            fn add(sum: &mut $sum, value: &Value) {
                let add: fn(&mut $sum, &Value) = $add;
                add(sum, value);
            }
        }
    )*};
}

text!(String, Box<str>);
// Even 2^64 rows of the largest number do not overflow the sum.
numbers!(
    i128,
    |sum, value| *sum += whole(value).unwrap_or(0),
    i8,
    i16,
    i32,
    i64,
    isize,
    u8,
    u16,
    u32,
    u64,
    usize
);
numbers!(f64, |sum, value| *sum += value.as_f64().unwrap_or(0.0), f32, f64);
impl OrderedField for bool {}
impl OrderedField for char {}
impl<V: OrderedField> OrderedField for Option<V> {}

/// Null adds nothing.
impl<V: NumberField> NumberField for Option<V> {
    type Sum = V::Sum;
    fn add(sum: &mut V::Sum, value: &Value) {
        V::add(sum, value);
    }
}

// Not derived: the derive would require the same of `T` and `V`.
impl<T, V> Clone for Field<T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for Field<T, V> {}

impl<T, V> fmt::Debug for Field<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
