//! The state that sandboxed programs keep.

use millrace_model::{Identity, StateKind};
use millrace_state::{Entity, Schema, SchemaField, Stateful};
use serde::{Deserialize, Serialize};

/// A value of `millrace.store`: any JSON under a key. Stored like every entity, so handlers in Rust can read what
/// programs wrote, with its history.
///
/// The implementation is written by hand, because this crate may not use the derive macro: `millrace-macros` is on the
/// floor `faces`, further down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestValue {
    pub key: String,
    pub value: serde_json::Value,
}

impl Stateful for GuestValue {
    const KIND: StateKind = StateKind::Entity;
    const TYPE: &'static str = "GuestValue";
    type Fields = ();
    const KEY_FIELDS: &'static [&'static str] = &["key"];

    fn identity(&self) -> Identity {
        Identity::Entity { type_name: Self::TYPE.to_owned(), key: self.key.clone() }
    }

    fn schema() -> Schema {
        let field =
            |name, spelled, role| SchemaField { name, spelled, role, defaulted: false, custom: false };
        let fields = [field("key", "String", "key"), field("value", "serde_json::Value", "")];
        Schema::of::<GuestValue>(Self::TYPE, &fields)
    }
}

impl Entity for GuestValue {
    fn key(&self) -> String {
        self.key.clone()
    }
}
