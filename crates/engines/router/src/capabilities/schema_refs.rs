//! Refuses schemas that refer to themselves: combined with alternatives, a small message could keep a check busy
//! practically for ever, and the loop runs checks on its own thread.

use std::collections::BTreeSet;

use serde_json::Value;

/// References that are resolved during a check and cannot be followed beforehand.
const DYNAMIC: [&str; 2] = ["$dynamicRef", "$recursiveRef"];

/// Returns a reference that closes a cycle or cannot be followed, if there is one.
pub(crate) fn endless(document: &Value) -> Option<String> {
    let mut walk = RefWalk { document, open: vec!["#".to_owned()], fine: BTreeSet::new() };
    walk.visit(document)
}

struct RefWalk<'a> {
    document: &'a Value,
    /// References that are being followed.
    open: Vec<String>,
    /// References that were followed to their end.
    fine: BTreeSet<String>,
}

impl<'a> RefWalk<'a> {
    /// The JSON parser bounds the nesting of the document, and so the depth of this recursion.
    fn visit(&mut self, value: &'a Value) -> Option<String> {
        match value {
            Value::Object(members) => {
                members.iter().find_map(|(name, member)| match (name.as_str(), member) {
                    ("$ref", Value::String(reference)) => self.follow(reference),
                    (name, Value::String(reference)) if DYNAMIC.contains(&name) => Some(reference.clone()),
                    // These hold values and not schemas: a member `$ref` in them is not a reference.
                    ("const" | "enum" | "default" | "examples", _) => None,
                    _ => self.visit(member),
                })
            }
            Value::Array(items) => items.iter().find_map(|item| self.visit(item)),
            _ => None,
        }
    }

    fn follow(&mut self, reference: &str) -> Option<String> {
        if self.fine.contains(reference) {
            return None;
        }
        let pointer = reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let Some(target) = pointer.and_then(|pointer| self.document.pointer(pointer)) else {
            return Some(reference.to_owned());
        };
        if self.open.iter().any(|open| open == reference) {
            return Some(reference.to_owned());
        }
        self.open.push(reference.to_owned());
        let found = self.visit(target);
        self.open.pop();
        self.fine.insert(reference.to_owned());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn circles_are_found_however_they_are_closed() {
        for schema in [
            json!({"properties": {"c": {"$ref": "#"}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}),
            json!({"properties": {"x": {"properties": {"y": {"$ref": "#/properties/x"}}}}}),
            json!({"$dynamicRef": "#node"}),
            json!({"$ref": "#anchor"}),
            json!({"$ref": "other.json"}),
        ] {
            assert!(endless(&schema).is_some(), "{schema}");
        }
    }

    #[test]
    fn references_that_end_are_fine_also_when_there_are_many() {
        let mut defs = serde_json::Map::new();
        for n in 0..60 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"anyOf": [next, next]}));
        }
        defs.insert("d60".to_owned(), json!({"type": "string", "default": {"$ref": "#"}}));
        assert_eq!(endless(&json!({"$ref": "#/$defs/d0", "$defs": defs})), None);
    }
}
