//! Parsing of manifests: the JSON object that a child process writes as its first line.
//!
//! A manifest is finite: each branch has one literal kind and one literal type, so that the routing table is complete
//! before the first message.

use std::fmt::Display;

use millrace_model::{Group, OsKind, OsType, TopicName};
use serde_json::{Map, Value};

use crate::capabilities::manifest::{Branch, BusTopic, CAPABILITY_NAME_BYTES_MAX, Manifest};
use crate::capabilities::schema::{Schema, SchemaError};

/// Longest manifest.
pub const MANIFEST_BYTES_MAX: usize = 1 << 20;
/// Most branches of `inbound`, and of `outbound`.
pub const BRANCHES_MAX: usize = 1024;
/// Most types in `subscribes`.
pub const SUBSCRIBES_MAX: usize = 1024;
/// Most topics in `bus`.
pub const BUS_TOPICS_MAX: usize = 64;
/// Longest part of a refused value that an error quotes.
const FOUND_BYTES_MAX: usize = 60;
/// Characters that patterns contain and names do not.
const PATTERN_CHARACTERS: [char; 14] =
    ['*', '?', '^', '$', '[', ']', '(', ')', '{', '}', '|', '+', '\\', '/'];

/// Why a manifest is refused. `member` is a path such as `inbound[2].type`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest has {bytes} bytes: at most {MANIFEST_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    #[error("the manifest is not valid JSON: {0}")]
    Json(String),
    #[error("the manifest is {found}: one JSON object is expected")]
    NoObject { found: String },
    #[error("{member} is missing: it must be {expected}")]
    Missing { member: String, expected: String },
    #[error("{member} is {found}: it must be {expected}")]
    Wrong { member: String, found: String, expected: String },
    #[error(
        "{member} is {found}: it must be one literal such as {example}, because what a capability handles has to be \
         finite; write one branch for each"
    )]
    Infinite { member: String, found: String, example: &'static str },
    #[error("{member} has {count} entries: at most {max} are allowed")]
    TooMany { member: String, count: usize, max: usize },
    #[error("{member} {error}")]
    Schema { member: String, error: SchemaError },
}

impl Manifest {
    /// Parses `{"name","description","inbound":[...],"outbound":[...]?,"subscribes":[...]?,"bus":[...]?}`. Unknown
    /// members are ignored, `null` counts as absent.
    pub fn parse(json: &str) -> Result<Manifest, ManifestError> {
        if json.len() > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLong { bytes: json.len() });
        }
        let value: Value =
            serde_json::from_str(json).map_err(|error| ManifestError::Json(error.to_string()))?;
        Manifest::from_value(&value)
    }

    pub fn from_value(value: &Value) -> Result<Manifest, ManifestError> {
        let Value::Object(members) = value else {
            return Err(ManifestError::NoObject { found: found(value) });
        };
        let members = ManifestObject { place: String::new(), members };
        let name = members.needed_text("name", NAME_EXPECTED)?;
        if !Manifest::name_is_legal(name) {
            return Err(members.wrong("name", NAME_EXPECTED));
        }
        let Some(inbound) = members.each("inbound", BRANCHES_MAX, BRANCHES_EXPECTED, branch)? else {
            return Err(members.missing("inbound", BRANCHES_EXPECTED));
        };
        let mut subscribes = Vec::new();
        let listed = members.each("subscribes", SUBSCRIBES_MAX, SUBSCRIBES_EXPECTED, |place, value| {
            literal_type(place, value)
        })?;
        for ty in listed.unwrap_or_default() {
            if !subscribes.contains(&ty) {
                subscribes.push(ty);
            }
        }
        let bus = members
            .each("bus", BUS_TOPICS_MAX, BUS_EXPECTED, |place, value| bus_topic(place, value, name))?;
        Ok(Manifest {
            name: name.into(),
            description: members.description()?,
            inbound,
            outbound: members.each("outbound", BRANCHES_MAX, BRANCHES_EXPECTED, branch)?,
            subscribes,
            bus: bus.unwrap_or_default(),
        })
    }
}

const NAME_EXPECTED: &str = "1 to 100 letters, digits, dots, hyphens and underscores";
const _: () = assert!(CAPABILITY_NAME_BYTES_MAX == 100, "the text above names the bound");
const BRANCHES_EXPECTED: &str = "an array of objects such as {\"kind\":\"query\",\"type\":\"Greeter.Hello\"}";
const SUBSCRIBES_EXPECTED: &str = "an array of event types such as [\"User.Created\"]";
const BUS_EXPECTED: &str = "an array of objects such as {\"topic\":\"orders\"}";
const KIND_EXPECTED: &str = "\"command\", \"query\", \"event\", \"reply\" or \"error\"";
const TYPE_EXPECTED: &str = "a domain and an action such as \"Memory.Get\", both beginning with A-Z and made of \
                             A-Z a-z 0-9, at most 256 characters together";

fn branch(place: String, value: &Value) -> Result<Branch, ManifestError> {
    let members = ManifestObject::of(
        place,
        value,
        "an object such as {\"kind\":\"query\",\"type\":\"Greeter.Hello\"}",
    )?;
    let kind = members.needed("kind", KIND_EXPECTED)?;
    let ty = members.needed("type", TYPE_EXPECTED)?;
    Ok(Branch {
        kind: literal_kind(members.path("kind"), kind)?,
        ty: literal_type(members.path("type"), ty)?,
        description: members.description()?,
        data: members.schema("data")?,
        output: members.schema("output")?,
    })
}

fn literal_kind(member: String, value: &Value) -> Result<OsKind, ManifestError> {
    let text = literal(&member, value, "\"query\"")?;
    OsKind::parse(text).ok_or_else(|| wrong(member, value, KIND_EXPECTED))
}

fn literal_type(member: String, value: &Value) -> Result<OsType, ManifestError> {
    let text = literal(&member, value, "\"Memory.Get\"")?;
    OsType::new(text).map_err(|_| wrong(member, value, TYPE_EXPECTED))
}

/// Accepts a single literal: no schema, no list and no pattern.
fn literal<'v>(member: &str, value: &'v Value, example: &'static str) -> Result<&'v str, ManifestError> {
    match value {
        Value::String(text) if !text.contains(PATTERN_CHARACTERS) => Ok(text),
        Value::String(_) | Value::Object(_) | Value::Array(_) | Value::Bool(true) => {
            Err(ManifestError::Infinite { member: member.into(), found: found(value), example })
        }
        _ => Err(wrong(member.into(), value, format_args!("a string such as {example}"))),
    }
}

fn bus_topic(place: String, value: &Value, capability: &str) -> Result<BusTopic, ManifestError> {
    let members = ManifestObject::of(place, value, "an object such as {\"topic\":\"orders\"}")?;
    let text = members.needed_text("topic", "a string: the topic's name")?;
    let topic = TopicName::new(text)
        .map_err(|error| members.wrong("topic", format_args!("the name of a topic ({error})")))?;
    let group = match members.text("group", "a string: the group's name")? {
        Some(text) => Group::new(text),
        None => Group::new(&format!("os.{capability}")),
    };
    let group = group.map_err(|error| ManifestError::Wrong {
        member: members.path("group"),
        found: members.get("group").map_or_else(|| format!("\"os.{capability}\""), found),
        expected: format!("the name of a group ({error})"),
    })?;
    let from_earliest = match members.text("from", FROM_EXPECTED)? {
        None | Some("latest") => false,
        Some("earliest") => true,
        Some(_) => return Err(members.wrong("from", FROM_EXPECTED)),
    };
    Ok(BusTopic { topic, group, from_earliest })
}

const FROM_EXPECTED: &str = "\"earliest\" or \"latest\"";

/// An object of the manifest and its path.
struct ManifestObject<'v> {
    /// The path with a dot, such as `inbound[2].`; empty at the top.
    place: String,
    members: &'v Map<String, Value>,
}

impl<'v> ManifestObject<'v> {
    fn of(place: String, value: &'v Value, expected: &str) -> Result<ManifestObject<'v>, ManifestError> {
        match value {
            Value::Object(members) => Ok(ManifestObject { place: place + ".", members }),
            _ => Err(wrong(place, value, expected)),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    fn get(&self, name: &str) -> Option<&'v Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    fn missing(&self, name: &str, expected: &str) -> ManifestError {
        ManifestError::Missing { member: self.path(name), expected: expected.into() }
    }

    fn wrong(&self, name: &str, expected: impl Display) -> ManifestError {
        wrong(self.path(name), self.get(name).unwrap_or(&Value::Null), expected)
    }

    fn needed(&self, name: &str, expected: &str) -> Result<&'v Value, ManifestError> {
        self.get(name).ok_or_else(|| self.missing(name, expected))
    }

    fn text(&self, name: &str, expected: &str) -> Result<Option<&'v str>, ManifestError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, expected)),
        }
    }

    fn needed_text(&self, name: &str, expected: &str) -> Result<&'v str, ManifestError> {
        self.text(name, expected)?.ok_or_else(|| self.missing(name, expected))
    }

    fn description(&self) -> Result<String, ManifestError> {
        Ok(self.text("description", "a string")?.unwrap_or_default().into())
    }

    fn schema(&self, name: &str) -> Result<Schema, ManifestError> {
        match self.get(name) {
            None => Ok(Schema::any()),
            Some(document) => Schema::new(document.clone())
                .map_err(|error| ManifestError::Schema { member: self.path(name), error }),
        }
    }

    fn each<T>(
        &self,
        name: &str,
        max: usize,
        expected: &str,
        read: impl Fn(String, &'v Value) -> Result<T, ManifestError>,
    ) -> Result<Option<Vec<T>>, ManifestError> {
        let values = match self.get(name) {
            None => return Ok(None),
            Some(Value::Array(values)) => values,
            Some(_) => return Err(self.wrong(name, expected)),
        };
        if values.len() > max {
            return Err(ManifestError::TooMany { member: self.path(name), count: values.len(), max });
        }
        let read = |(at, value)| read(format!("{}[{at}]", self.path(name)), value);
        values.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
    }
}

fn wrong(member: String, value: &Value, expected: impl Display) -> ManifestError {
    ManifestError::Wrong { member, found: found(value), expected: expected.to_string() }
}

/// Quotes a refused value in an error: objects and arrays are only named, long text is cut.
fn found(value: &Value) -> String {
    match value {
        Value::Object(_) => return "an object".into(),
        Value::Array(_) => return "an array".into(),
        _ => {}
    }
    let mut text = value.to_string();
    if text.len() > FOUND_BYTES_MAX {
        text.truncate(text.floor_char_boundary(FOUND_BYTES_MAX));
        text.push_str("...");
    }
    text
}
