//! Which rows a query has to look at: what its filters ask of the keys tells where the others are.

use millrace_model::keys;
use serde_json::Value;

use super::query::Select;
use crate::typed::Node;

/// The part of the table that holds every row that can match.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Narrow {
    pub(crate) prefix: String,
    /// The escaped right key of relations.
    pub(crate) right: Option<String>,
}

impl Narrow {
    pub(crate) fn of(select: &Select) -> Narrow {
        let mut narrow = Narrow { prefix: select.prefix.clone(), right: select.right.clone() };
        // `namespace/kind/type/` and nothing else: the caller has not named a part.
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
            // A second key is the right end of a relation.
            (None, Some(second)) => narrow.right = narrow.right.or(Some(second)),
            (None, None) => {}
        }
        narrow
    }
}

/// The escaped key text of the one value that the filters allow the field. Without the closing slash: what it is too much
/// of, the filters leave out.
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
