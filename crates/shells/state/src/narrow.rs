//! Which rows a query has to read: filters that ask for one value of a key field limit the range.

use millrace_model::keys;
use serde_json::Value;

use super::query::Select;
use crate::typed::Node;

/// A range of the table that contains every row that can match.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Narrow {
    pub(crate) prefix: String,
    /// The escaped right key of relations.
    pub(crate) right: Option<String>,
}

impl Narrow {
    pub(crate) fn of(select: &Select) -> Narrow {
        let mut narrow = Narrow { prefix: select.prefix.clone(), right: select.right.clone() };
        // Narrow only the plain prefix `namespace/kind/type/`: otherwise the caller has already selected a range.
        if select.prefix.matches('/').count() > 3 || !select.prefix.ends_with('/') {
            return narrow;
        }
        let asked = |at: usize| select.key_fields.get(at).and_then(|field| asked(&select.filters, field));
        match (asked(0), asked(1)) {
            (Some(first), None) => narrow.prefix.push_str(&first),
            (Some(first), Some(second)) => {
                narrow.prefix.push_str(&first);
                narrow.prefix.push('/');
                narrow.prefix.push_str(&second);
            }
            // The second key is the right end of a relation.
            (None, Some(second)) => narrow.right = narrow.right.or(Some(second)),
            (None, None) => {}
        }
        narrow
    }
}

/// Returns the escaped text of the only value that the filters allow for a key field. The prefix made from it has no
/// closing slash, so it also covers longer keys; the filters exclude their rows.
fn asked(filters: &[Node], field: &str) -> Option<String> {
    filters.iter().find_map(|filter| match filter {
        Node::Equal { field: found, value } if *found == field => match value {
            Value::String(text) => Some(keys::escaped(text)),
            Value::Number(number) => Some(keys::escaped(&number.to_string())),
            _ => None,
        },
        Node::All(nodes) => asked(nodes, field),
        _ => None,
    })
}
