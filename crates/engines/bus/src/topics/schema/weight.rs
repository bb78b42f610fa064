//! The weight of a schema, which says how much a check can cost: the number of its values, with every reference
//! replaced by its target.
//!
//! Validation applies each part of a schema to each value of a payload once at most, so payload times weight bounds its
//! work. That holds only if references end and lead where this file thinks they lead; a schema that breaks this is
//! refused.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::topics::schema::SchemaError;

/// Members that hold values, not schemas: what looks like a keyword in them is none.
const VALUES: [&str; 4] = ["const", "enum", "default", "examples"];
/// Members whose own members have names of the author's choice: none of those is a keyword.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// Schemas that are used only where something refers to them.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// References that are resolved during the check, so they cannot be followed here.
const DYNAMIC: [&str; 2] = ["$dynamicRef", "$recursiveRef"];
/// Members that may make a check visit the parts beside them once more.
const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

pub(super) fn weight_of(document: &Value) -> Result<u64, SchemaError> {
    one_resource(document, Members::Keywords, &mut String::new())?;
    let mut walk = Walk { document, open: vec!["#".to_owned()], known: BTreeMap::new() };
    walk.visit(document, Members::Keywords, &mut String::new())
}

/// Kinds of an object's members: keywords of JSON Schema, or names of the author's choice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    Keywords,
    Names,
}

impl Members {
    /// Returns what the members of this keyword's value are; `None` = of a schema.
    fn below(keyword: Option<&str>) -> Members {
        if keyword.is_some_and(|name| NAMED.contains(&name)) { Members::Names } else { Members::Keywords }
    }
}

/// Refuses a part with an id of its own: the id would change what `#/...` means inside it.
fn one_resource(value: &Value, members: Members, at: &mut String) -> Result<(), SchemaError> {
    let top = at.is_empty();
    each(value, members, at, &mut |keyword, member, at| {
        if !top && keyword == Some("$id") && member.is_string() {
            return Err(refused(
                at,
                "an id inside a schema changes what references mean: give it only at the top",
            ));
        }
        one_resource(member, Members::below(keyword), at)
    })
}

struct Walk<'a> {
    document: &'a Value,
    /// The references that are being followed.
    open: Vec<String>,
    /// The weights of references that were followed to their end.
    known: BTreeMap<String, u64>,
}

impl<'a> Walk<'a> {
    /// Returns the weight of a part. The recursion is bounded, because the parser of the document bounds its nesting.
    fn visit(&mut self, value: &'a Value, members: Members, at: &mut String) -> Result<u64, SchemaError> {
        let mut weight: u64 = 1;
        let mut factor = 1;
        each(value, members, at, &mut |keyword, member, at| {
            let part = match (keyword, member) {
                (Some("$ref"), Value::String(reference)) => self.follow(reference, at)?,
                (Some(name), Value::String(_)) if DYNAMIC.contains(&name) => {
                    return Err(refused(at, "dynamic references are not possible here: refer to #/..."));
                }
                (Some(name), _) if DEFINITIONS.contains(&name) => 0,
                (Some(name), _) if VALUES.contains(&name) => values_in(member),
                (keyword, _) => {
                    factor *= if keyword.is_some_and(|name| UNEVALUATED.contains(&name)) { 2 } else { 1 };
                    self.visit(member, Members::below(keyword), at)?
                }
            };
            weight = weight.saturating_add(part);
            Ok(())
        })?;
        Ok(weight.saturating_mul(factor))
    }

    fn follow(&mut self, reference: &str, at: &str) -> Result<u64, SchemaError> {
        if let Some(weight) = self.known.get(reference) {
            return Ok(*weight);
        }
        let document = self.document;
        let pointer = reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let Some((pointer, target)) = pointer.and_then(|at| Some((at, document.pointer(at)?))) else {
            return Err(refused(at, "a reference must lead into this document: #/..."));
        };
        if self.open.iter().any(|open| open == reference) {
            return Err(refused(at, "the reference leads back to itself, and a check must end"));
        }
        self.open.push(reference.to_owned());
        let weight = self.visit(target, Members::Keywords, &mut pointer.to_owned())?;
        self.open.pop();
        self.known.insert(reference.to_owned(), weight);
        Ok(weight)
    }
}

fn values_in(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(values_in).sum::<u64>() + 1,
        Value::Object(members) => members.values().map(values_in).sum::<u64>() + 1,
        _ => 1,
    }
}

type Take<'t, 'a> = dyn FnMut(Option<&'a str>, &'a Value, &mut String) -> Result<(), SchemaError> + 't;

/// Calls `take` with each part of a container: the keyword whose value it is, if any, the part, and its JSON Pointer.
fn each<'a>(
    value: &'a Value,
    members_are: Members,
    at: &mut String,
    take: &mut Take<'_, 'a>,
) -> Result<(), SchemaError> {
    let length = at.len();
    match value {
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            *at += "/";
            *at += &name.replace('~', "~0").replace('/', "~1");
            take(Some(name.as_str()).filter(|_| members_are == Members::Keywords), member, at)?;
            at.truncate(length);
            Ok(())
        }),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            *at += &format!("/{index}");
            take(None, item, at)?;
            at.truncate(length);
            Ok(())
        }),
        _ => Ok(()),
    }
}

fn refused(at: &str, why: &str) -> SchemaError {
    SchemaError { at: at.to_owned(), why: why.to_owned() }
}
