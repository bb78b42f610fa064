//! Manifests as JSON, for `Syscall.Describe` and listings.

use serde_json::{Map, Value, json};

use crate::capabilities::manifest::{Branch, BusTopic, Manifest};
use crate::capabilities::schema::Schema;

impl Manifest {
    /// Returns the JSON that [`Manifest::parse`] reads.
    pub fn to_json(&self) -> Value {
        let mut manifest = json!({
            "name": &*self.name,
            "description": self.description,
            "inbound": self.inbound.iter().map(Branch::to_json).collect::<Vec<_>>(),
            "subscribes": self.subscribes.iter().map(|ty| ty.as_str()).collect::<Vec<_>>(),
            "bus": self.bus.iter().map(BusTopic::to_json).collect::<Vec<_>>(),
        });
        if let Some(outbound) = &self.outbound {
            manifest["outbound"] = outbound.iter().map(Branch::to_json).collect();
        }
        manifest
    }
}

impl Branch {
    pub fn to_json(&self) -> Value {
        json!({
            "kind": self.kind.as_str(),
            "type": self.ty.as_str(),
            "description": self.description,
            "data": self.data.document(),
            "output": self.output.document(),
        })
    }

    /// Returns the answer to `Syscall.Describe {name}` (RFC 0024): `{name, kind, description, input, output}`, and the
    /// capability that the branch belongs to.
    pub fn describe(&self, of: &Manifest) -> Value {
        let mut described = self.describe_in_schemas(of);
        described["name"] = self.ty.as_str().into();
        described
    }

    /// Returns an entry of `schemas`, the answer to `Syscall.Describe {capabilities}`. A branch without a description
    /// gets that of its capability.
    pub fn describe_in_schemas(&self, of: &Manifest) -> Value {
        let description = if self.description.is_empty() { &of.description } else { &self.description };
        json!({
            "kind": self.kind.as_str(),
            "capability": &*of.name,
            "description": description,
            "input": self.data.described(description),
            "output": self.output.described(""),
        })
    }
}

impl BusTopic {
    pub fn to_json(&self) -> Value {
        json!({
            "topic": self.topic.as_str(),
            "group": self.group.as_str(),
            "from": if self.from_earliest { "earliest" } else { "latest" },
        })
    }
}

impl Schema {
    /// Returns the document as an object with a description: RFC 0024 requires one on every input, and not every reader
    /// knows that `true` is a schema.
    fn described(&self, description: &str) -> Value {
        let mut members = match self.document() {
            Value::Bool(true) => Map::new(),
            Value::Object(members) => members.clone(),
            other => return other.clone(),
        };
        if !description.is_empty() {
            members.entry("description").or_insert_with(|| description.into());
        }
        Value::Object(members)
    }
}
