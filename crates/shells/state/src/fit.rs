//! Whether a program's type fits the stored rows: the same shape, or one that differs only by optional fields. Programs
//! with and without such a field may write at the same time; a program that does not know the field keeps its value.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_model::{HeadRow, Intent, JsonText, SchemaRow, Space, StateKind, keys};
use serde_json::Value;

use super::State;
use super::error::StateError;
use super::pending::{Expectation, Origin};
use super::scan;
use super::schema::Drift;
use crate::typed::{Schema, canonical_text};

/// Fields of stored rows that the program's types lack, by kind and type name.
pub(crate) type Carried = BTreeMap<(StateKind, String), BTreeSet<String>>;

impl Drift {
    pub(crate) fn between(kind: StateKind, stored: &SchemaRow, current: &Schema) -> Option<Drift> {
        let changed_fields: Vec<_> =
            current.fields.iter().filter_map(|(name, now)| changed(stored, current, name, now)).collect();
        let added_fields: Vec<String> =
            current.fields.keys().filter(|name| spelled(stored, name).is_none()).cloned().collect();
        let removed_fields: Vec<String> = unknown_to(stored, current).cloned().collect();
        let fits = changed_fields.is_empty()
            && added_fields.iter().all(|name| current.optional.contains(name))
            && removed_fields.iter().all(|name| stored.optional.contains(name));
        // If the type does not fit, all differences are reported: a migration would drop the fields that the program
        // lacks.
        (!fits).then(|| Drift {
            kind,
            type_name: current.type_name.to_owned(),
            stored_version: stored.version,
            added_fields,
            removed_fields,
            changed_fields,
        })
    }
}

fn spelled<'r>(stored: &'r SchemaRow, name: &str) -> Option<&'r String> {
    stored.fields.get(name).or_else(|| stored.added.get(name))
}

fn unknown_to<'r>(stored: &'r SchemaRow, current: &Schema) -> impl Iterator<Item = &'r String> {
    stored.fields.keys().chain(stored.added.keys()).filter(|name| !current.fields.contains_key(*name))
}

/// Returns the name, the stored type and the program's type of a field, if the two differ.
fn changed(stored: &SchemaRow, current: &Schema, name: &str, now: &str) -> Option<(String, String, String)> {
    let before = spelled(stored, name)?;
    let told = |before: &str, now: &str| Some((name.to_owned(), before.to_owned(), now.to_owned()));
    match (stored.shapes.get(name), current.shapes.get(name)) {
        (Some(was), Some(is)) if was != is && before == now => return told(was, is),
        (Some(was), Some(is)) if was != is => return told(before, now),
        (Some(_), Some(_)) => {}
        _ if before != now => return told(before, now),
        _ => {}
    }
    // Rows from before the field was added lack it.
    if stored.added.contains_key(name) && !current.optional.contains(name) && !current.shapes.is_empty() {
        return told(&format!("{before} or missing"), now);
    }
    None
}

/// For a type that fits: returns the schema row with the fields that the program knows and the row does not. New fields
/// go to `added`, where versions that only know spellings do not see them.
pub(crate) fn extended(stored: &SchemaRow, current: &Schema) -> Option<SchemaRow> {
    if current.shapes.is_empty() {
        return None;
    }
    let mut row = stored.clone();
    for (name, spelled_now) in &current.fields {
        if spelled(stored, name).is_none() {
            row.added.insert(name.clone(), spelled_now.clone());
            row.optional.insert(name.clone());
        } else if !stored.shapes.contains_key(name) && current.optional.contains(name) {
            row.optional.insert(name.clone());
        }
        if let Some(shape) = current.shapes.get(name) {
            row.shapes.entry(name.clone()).or_insert_with(|| shape.clone());
        }
    }
    (row != *stored).then_some(row)
}

/// For a type that fits: returns the fields that its program must keep as they are.
pub(crate) fn carried(stored: &SchemaRow, current: &Schema) -> BTreeSet<String> {
    unknown_to(stored, current).cloned().collect()
}

/// Adds the fields that the program lacks to its declarations, with their stored values. If those change before the
/// commit, the commit is repeated, as with an update.
pub(crate) fn carry_over(
    state: &State,
    carried: &Carried,
    intents: &mut [Intent],
    expected: &mut Vec<Expectation>,
) -> Result<(), StateError> {
    let known: BTreeMap<String, Option<Bytes>> =
        expected.iter().map(|expected| (expected.key.clone(), expected.head.clone())).collect();
    for intent in intents {
        let of_type = (intent.identity.kind(), intent.identity.type_name().to_owned());
        let (Some(names), Some(fields)) = (carried.get(&of_type), &intent.fields) else { continue };
        let key = keys::identity(state.namespace(), &intent.identity);
        let head = match known.get(&key) {
            Some(head) => head.clone(),
            None => {
                let head = state.row(Space::Heads, &key)?;
                let (identity, head_then) = (intent.identity.clone(), head.clone());
                expected.push(Expectation {
                    identity,
                    key: key.clone(),
                    head: head_then,
                    origin: Origin::Carried,
                });
                head
            }
        };
        let Some(head) = head else { continue };
        if let Some(merged) = merged(&key, &head, names, fields)? {
            intent.fields = Some(merged);
        }
    }
    Ok(())
}

fn merged(
    key: &str,
    head: &Bytes,
    names: &BTreeSet<String>,
    fields: &JsonText,
) -> Result<Option<JsonText>, StateError> {
    let stood = scan::parse(key, &HeadRow::decode(key, head)?.fields)?;
    let mut declared = scan::parse(key, fields.as_str())?;
    let (Value::Object(stood), Value::Object(now)) = (stood, &mut declared) else { return Ok(None) };
    let mut found = false;
    for (name, value) in stood.into_iter().filter(|(name, _)| names.contains(name)) {
        found |= now.insert(name, value).is_none();
    }
    Ok(found.then(|| JsonText::from_stored(canonical_text(&declared).into_bytes().into())))
}
