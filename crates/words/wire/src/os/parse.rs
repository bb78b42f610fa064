//! Parses a line of JSON into a message, or into one refusal that names everything that is wrong with it.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use millrace_model::{
    JSON_DEPTH_MAX, JsonText, OS_ID_BYTES_MAX, OS_TYPE_BYTES_MAX, OsId, OsKind, OsMessage, OsMetadata,
    OsType, Timestamp,
};
use serde_json::value::RawValue;

use super::members::{MetadataMembers, OsMembers};
use super::refusal::OsRefusal;
use crate::error::shown;
use crate::fields::{INTEGER_MAX, kind_of, text_of};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Defaults for absent metadata, for edges that accept messages without it. Wrong metadata is refused all the same.
#[derive(Clone, Copy)]
pub struct Lenient<'a> {
    /// Called only when a message has no id.
    pub id: &'a dyn Fn() -> OsId,
    pub timestamp: Timestamp,
}

impl Debug for Lenient<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lenient({})", self.timestamp)
    }
}

/// Parses a line. `line` is given without its LF; a CR at its end is harmless. Without `lenient`, metadata must be
/// complete.
pub fn parse(line: &[u8], lenient: Option<Lenient<'_>>) -> Result<OsMessage, OsRefusal> {
    if line.starts_with(BYTE_ORDER_MARK) {
        return Err(OsRefusal::invalid_json(
            "the line begins with a byte order mark, send UTF-8 without one",
        ));
    }
    let text = std::str::from_utf8(line)
        .map_err(|error| OsRefusal::invalid_json(format_args!("the line is not UTF-8: {error}")))?;
    let members: OsMembers<'_> = serde_json::from_str(text).map_err(|_| no_object(text))?;
    let lineage: Option<MetadataMembers<'_>> =
        members.metadata.and_then(|metadata| serde_json::from_str(metadata.get()).ok());
    let about = About {
        ty: members.ty,
        id: lineage.as_ref().and_then(|lineage| lineage.id),
        correlation: lineage.as_ref().and_then(|lineage| lineage.correlation),
    };
    if !JsonText::depth_is_fine(text) {
        let deep = format_args!("nested more than {JSON_DEPTH_MAX} levels deep");
        return Err(about.refuse(OsRefusal::invalid_json(deep)));
    }
    let mut problems = Problems(Vec::new());
    let kind = problems.kind(members.kind);
    let ty = problems.ty(members.ty);
    let data = problems.data(members.data);
    let metadata = problems.metadata(members.metadata, lineage, lenient);
    match (kind, ty, data, metadata) {
        (Some(kind), Some(ty), Some(data), Some(metadata)) if problems.0.is_empty() => {
            Ok(OsMessage { kind, ty, data: JsonText::from_checked(data), metadata })
        }
        _ => Err(about.refuse(OsRefusal::schema(problems.0.join("; ")))),
    }
}

/// Returns the refusal of a text that could not be split into members, because it is not JSON or not an object.
fn no_object(text: &str) -> OsRefusal {
    match serde_json::from_str::<&RawValue>(text) {
        Err(broken) => OsRefusal::invalid_json(broken),
        Ok(raw) => OsRefusal::schema(format_args!("found {}: one JSON object is expected", kind_of(raw))),
    }
}

/// Members of the message that a refusal repeats.
struct About<'a> {
    ty: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    correlation: Option<&'a RawValue>,
}

impl About<'_> {
    fn refuse(&self, refusal: OsRefusal) -> OsRefusal {
        OsRefusal {
            ty: self.ty.and_then(type_of),
            causation: self.id.and_then(id_of),
            correlation: self.correlation.and_then(id_of),
            ..refusal
        }
    }
}

/// Everything that is wrong with a message, in the order of its members, so that its author can correct all of it at
/// once.
struct Problems(Vec<String>);

impl Problems {
    fn kind(&mut self, raw: Option<&RawValue>) -> Option<OsKind> {
        let read = |raw| OsKind::parse(&text_of(raw)?);
        self.needed("kind", raw, KIND_EXPECTED, read)
    }

    fn ty(&mut self, raw: Option<&RawValue>) -> Option<OsType> {
        self.needed("type", raw, TYPE_EXPECTED, type_of)
    }

    fn data<'a>(&mut self, raw: Option<&'a RawValue>) -> Option<&'a RawValue> {
        self.needed("data", raw, "any JSON value, null included", Some)
    }

    fn metadata(
        &mut self,
        raw: Option<&RawValue>,
        lineage: Option<MetadataMembers<'_>>,
        lenient: Option<Lenient<'_>>,
    ) -> Option<OsMetadata> {
        let lineage = match lineage {
            None if lenient.is_some() && present(raw).is_none() => Some(MetadataMembers::default()),
            lineage => self.needed("metadata", raw, METADATA_EXPECTED, |_| lineage),
        }?;
        let id = match lenient {
            Some(lenient) if present(lineage.id).is_none() => Some((lenient.id)()),
            _ => self.needed("metadata.id", lineage.id, ID_EXPECTED, id_of),
        };
        let timestamp = match lenient {
            Some(lenient) if present(lineage.timestamp).is_none() => Some(lenient.timestamp),
            _ => self.needed("metadata.timestamp", lineage.timestamp, TIMESTAMP_EXPECTED, timestamp_of),
        };
        let correlation = self.optional("metadata.correlation", lineage.correlation);
        let causation = self.optional("metadata.causation", lineage.causation);
        let other = (!lineage.other.is_empty()).then(|| Arc::from(one_line(lineage.other)));
        Some(OsMetadata { id: id?, timestamp: timestamp?, correlation, causation, other })
    }

    fn needed<'a, T>(
        &mut self,
        name: &str,
        raw: Option<&'a RawValue>,
        expected: &str,
        read: impl FnOnce(&'a RawValue) -> Option<T>,
    ) -> Option<T> {
        let value = raw.and_then(read);
        if value.is_none() {
            self.0.push(match raw {
                None => format!("{name} is missing: it must be {expected}"),
                Some(raw) => format!("{name} is {}: it must be {expected}", found(raw)),
            });
        }
        value
    }

    fn optional(&mut self, name: &str, raw: Option<&RawValue>) -> Option<OsId> {
        self.needed(name, Some(present(raw)?), ID_EXPECTED, id_of)
    }
}

const KIND_EXPECTED: &str = "\"command\", \"query\", \"event\", \"reply\" or \"error\"";
const TYPE_EXPECTED: &str = "a domain and an action such as \"Memory.Get\", both beginning with A-Z and made of \
                             A-Z a-z 0-9, at most 256 characters together";
const METADATA_EXPECTED: &str = "an object with id and timestamp";
const ID_EXPECTED: &str = "a string of 1 to 256 bytes without lone surrogates";
const TIMESTAMP_EXPECTED: &str = "whole epoch milliseconds from 0 to 9007199254740991";
const _: () = assert!(
    OS_ID_BYTES_MAX == 256 && OS_TYPE_BYTES_MAX == 256 && INTEGER_MAX == 9_007_199_254_740_991,
    "the texts above name the bounds"
);

/// Treats `null` as absent, as in every optional member.
fn present(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

fn type_of(raw: &RawValue) -> Option<OsType> {
    OsType::new(&text_of(raw)?).ok()
}

fn id_of(raw: &RawValue) -> Option<OsId> {
    OsId::new(&text_of(raw)?).ok()
}

/// Reads `1`, and also `1.0`, `1e3` and `-0`: the value counts, not its spelling.
fn timestamp_of(raw: &RawValue) -> Option<Timestamp> {
    let number = match raw.get().parse::<u64>() {
        Ok(number) => number,
        // Only a JSON number can parse here: strings begin with a quote.
        Err(_) => {
            let number: f64 = raw.get().parse().ok()?;
            (number.fract() == 0.0 && number >= 0.0).then_some(number as u64)?
        }
    };
    (number <= INTEGER_MAX).then_some(Timestamp(number))
}

/// Describes a refused value: a container only by its kind.
fn found(raw: &RawValue) -> String {
    if raw.get().starts_with(['{', '[']) { kind_of(raw).into() } else { shown(raw.get()) }
}

/// Replaces line breaks by spaces. They occur only between tokens: JSON strings contain no raw CR or LF.
fn one_line(text: String) -> String {
    if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], " ") } else { text }
}
