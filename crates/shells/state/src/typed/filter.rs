//! Filters: a small tree over the fields of a type, evaluated on the stored JSON.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::{BitAnd, BitOr, Not};

use serde_json::Value;

/// A condition on a `T`. Made by the methods of [`super::Field`], joined by `and`, `or`, `not` or by `&`, `|`, `!`.
///
/// An absent field and `None` are null. Null equals null and differs from everything else, and is neither less nor
/// greater than anything.
#[derive(Debug)]
pub struct Filter<T> {
    node: Node,
    owner: PhantomData<fn(T)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Equal {
        field: &'static str,
        value: Value,
    },
    /// The comparison holds for any of these orderings.
    Ordered {
        field: &'static str,
        value: Value,
        any_of: &'static [Ordering],
    },
    OneOf {
        field: &'static str,
        values: Vec<Value>,
    },
    Text {
        field: &'static str,
        text: String,
        how: TextMatch,
    },
    Null {
        field: &'static str,
    },
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    /// A value that cannot be written as JSON; the query reports it.
    Unwritable {
        field: &'static str,
        reason: String,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum TextMatch {
    StartsWith,
    EndsWith,
    Contains,
}

impl<T> Filter<T> {
    pub(crate) fn new(node: Node) -> Filter<T> {
        Filter { node, owner: PhantomData }
    }

    pub(crate) fn into_node(self) -> Node {
        self.node
    }

    #[must_use]
    pub fn and(self, other: Filter<T>) -> Filter<T> {
        Filter::new(Node::All(vec![self.node, other.node]))
    }

    #[must_use]
    pub fn or(self, other: Filter<T>) -> Filter<T> {
        Filter::new(Node::Any(vec![self.node, other.node]))
    }

    // Exists beside the operator, so that a chain of calls needs no trait in scope.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub fn not(self) -> Filter<T> {
        Filter::new(Node::Not(Box::new(self.node)))
    }
}

// Not derived: the derive would require `T: Clone`.
impl<T> Clone for Filter<T> {
    fn clone(&self) -> Self {
        Filter::new(self.node.clone())
    }
}

impl<T> BitAnd for Filter<T> {
    type Output = Filter<T>;
    fn bitand(self, other: Filter<T>) -> Filter<T> {
        self.and(other)
    }
}

impl<T> BitOr for Filter<T> {
    type Output = Filter<T>;
    fn bitor(self, other: Filter<T>) -> Filter<T> {
        self.or(other)
    }
}

impl<T> Not for Filter<T> {
    type Output = Filter<T>;
    fn not(self) -> Filter<T> {
        Filter::not(self)
    }
}

impl Node {
    pub(crate) fn matches(&self, fields: &Value) -> bool {
        let of = |field: &str| fields.get(field).unwrap_or(&Value::Null);
        match self {
            Node::Equal { field, value } => of(field) == value,
            Node::Ordered { field, value, any_of } => {
                let found = of(field);
                let comparable = !found.is_null() && !value.is_null();
                comparable && compare(found, value).is_some_and(|ordering| any_of.contains(&ordering))
            }
            Node::OneOf { field, values } => values.contains(of(field)),
            Node::Text { field, text, how } => of(field).as_str().is_some_and(|found| match how {
                TextMatch::StartsWith => found.starts_with(text.as_str()),
                TextMatch::EndsWith => found.ends_with(text.as_str()),
                TextMatch::Contains => found.contains(text.as_str()),
            }),
            Node::Null { field } => of(field).is_null(),
            Node::All(nodes) => nodes.iter().all(|node| node.matches(fields)),
            Node::Any(nodes) => nodes.iter().any(|node| node.matches(fields)),
            Node::Not(node) => !node.matches(fields),
            Node::Unwritable { .. } => false,
        }
    }

    /// Returns the first value in the tree that could not be written as JSON.
    pub(crate) fn problem(&self) -> Option<(&'static str, &str)> {
        match self {
            Node::Unwritable { field, reason } => Some((field, reason)),
            Node::All(nodes) | Node::Any(nodes) => nodes.iter().find_map(Node::problem),
            Node::Not(node) => node.problem(),
            _ => None,
        }
    }
}

/// Compares for sorting: null before everything, numbers by value, text by its bytes. Values of different kinds have no
/// order.
pub(crate) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        (Value::Null, _) => Some(Ordering::Less),
        (_, Value::Null) => Some(Ordering::Greater),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(_), Value::Number(_)) => match (whole(left), whole(right)) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
        },
        _ => None,
    }
}

/// Returns a whole number exactly: 64-bit integers do not fit a float.
pub(crate) fn whole(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}
