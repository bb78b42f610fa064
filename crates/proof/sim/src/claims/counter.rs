//! A counter that some handlers increment. Each handler reads it when its run begins and writes it with its last
//! commit, so two runs that overlap conflict. However often runs are cut off, killed, refused and repeated, the counter
//! must end at the number of acknowledged runs that count.

use bytes::Bytes;
use millrace_claims::{Expected, StateChanges};
use millrace_model::{HeadRow, Identity, Intent, JsonText, Namespace, Space, keys};
use millrace_store::{KeyRange, Store};

/// The counter as a run has read it.
#[derive(Clone, Debug)]
pub(super) struct CounterRead {
    head: Option<Bytes>,
    pub(super) count: u64,
}

fn identity() -> Identity {
    Identity::Entity { type_name: "Counter".into(), key: "all".into() }
}

/// The key of the counter's row in [`Space::Heads`].
pub(super) fn head_key() -> String {
    keys::identity(&Namespace::default(), &identity())
}

pub(super) fn read(store: &dyn Store) -> CounterRead {
    let key = head_key();
    let range = KeyRange { from: key.clone(), to: Some(format!("{key}\0")) };
    let rows = store.scan(Space::Heads, &range, 1).unwrap_or_default();
    let head = rows.into_iter().next().map(|row| row.value);
    let count = head.as_ref().and_then(|row| {
        let row: HeadRow = serde_json::from_slice(row).ok()?;
        let fields: serde_json::Value = serde_json::from_str(&row.fields).ok()?;
        fields["count"].as_u64()
    });
    CounterRead { head, count: count.unwrap_or(0) }
}

/// Increments the counter, on condition that it still has the value that was read.
pub(super) fn increment(read: &CounterRead) -> StateChanges {
    let fields = JsonText::from_value(&serde_json::json!({ "count": read.count + 1 })).ok();
    StateChanges {
        intents: vec![Intent { identity: identity(), fields, schema: 1 }],
        expected: vec![Expected { identity: identity(), head: read.head.clone() }],
        ..StateChanges::default()
    }
}
