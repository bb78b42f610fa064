//! The state that sandboxed programs keep.

use millrace_model::{Identity, StateKind};
use millrace_session::{Entity, Schema, SchemaField, Stateful};
use serde::{Deserialize, Serialize};

/// A value of `millrace.store`: any JSON under a key. Read and written like every entity, so handlers in Rust see what
/// programs wrote, with its history.
///
/// The type is written out by hand: the derive stands below this crate.
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
