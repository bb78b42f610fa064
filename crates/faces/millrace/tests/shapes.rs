//! Types that change without a migration, and types whose nested types change: only the shape of the stored value
//! matters.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use harness::Harness;
use millrace::{Entity, Session, SessionError, StateError, Stateful};
use millrace_session::model::{Op, SchemaRow, Space, keys};
use serde::{Deserialize, Serialize};

/// The type in its first version.
mod first {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Price {
        pub(super) cents: u32,
    }

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Order {
        #[key]
        pub(super) id: String,
        pub(super) price: Price,
        pub(super) count: u64,
    }

    pub(super) fn order(count: u64) -> Order {
        Order { id: "o".into(), price: Price { cents: 5 }, count }
    }
}

/// The same shape with other type names.
mod respelled {
    use super::*;

    type Count = u64;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Money {
        pub(super) cents: u32,
    }

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Order {
        #[key]
        pub(super) id: std::string::String,
        pub(super) price: Money,
        pub(super) count: Count,
    }
}

/// The same type names with another shape inside.
mod nested {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Price {
        pub(super) cents: u64,
        pub(super) currency: String,
    }

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Order {
        #[key]
        pub(super) id: String,
        pub(super) price: Price,
        pub(super) count: u64,
    }
}

/// The first version plus fields that may be missing.
mod extended {
    use super::*;

    #[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Order {
        #[key]
        pub(super) id: String,
        pub(super) price: first::Price,
        pub(super) count: u64,
        pub(super) note: Option<String>,
        #[serde(default)]
        pub(super) tags: Vec<String>,
    }

    pub(super) fn order(count: u64, note: &str) -> Order {
        let first::Order { id, price, .. } = first::order(count);
        Order { id, price, count, note: Some(note.into()), tags: vec!["t".into()] }
    }
}

fn write<T: Stateful>(session: &Session, state: T) -> Result<Option<u64>, SessionError> {
    session.ensure(state)?;
    session.commit()
}

fn drift(refused: Result<Option<u64>, SessionError>) -> String {
    let error = refused.unwrap_err();
    assert!(matches!(error, SessionError::State(StateError::SchemaOutdated(_))), "{error}");
    error.to_string()
}

fn session_with_first() -> Session {
    let session = Session::open("memory:").unwrap();
    write(&session, first::order(1)).unwrap().unwrap();
    session
}

#[test]
fn other_names_for_the_same_shape_are_no_drift() {
    let session = session_with_first();
    let order = respelled::Order { id: "o".into(), price: respelled::Money { cents: 5 }, count: 2 };
    write(&session.beside(), order).unwrap().unwrap();
    // The first program can still write.
    write(&session, first::order(3)).unwrap().unwrap();
    assert_eq!(session.state().schema_versions::<first::Order>().unwrap().len(), 1);
}

#[test]
fn a_change_inside_of_a_nested_type_is_seen() {
    let session = session_with_first();
    let price = nested::Price { cents: 5, currency: "EUR".into() };
    let refused = write(&session.beside(), nested::Order { id: "o".into(), price, count: 2 });
    let text = drift(refused);
    assert!(text.contains("`price` was {cents: u32} and is {cents: u64, currency: str}"), "{text}");
    assert_eq!(session.get::<first::Order>("o").unwrap().unwrap().count, 1);
}

#[test]
fn fields_that_may_be_missing_need_no_migration_and_outlive_programs_without_them() {
    let old = session_with_first();
    let new = old.beside();
    // A stored row is read, without the new fields.
    let read = new.get::<extended::Order>("o").unwrap().unwrap();
    assert_eq!((read.count, read.note.clone(), read.tags.len()), (1, None, 0));
    write(&new, extended::order(2, "by the new one")).unwrap().unwrap();
    // The old program writes the same row, and the fields that it does not know are kept.
    write(&old, first::order(3)).unwrap().unwrap();
    old.update("o", |order: Option<first::Order>| order.map(|order| first::order(order.count + 1))).unwrap();
    old.commit().unwrap().unwrap();
    assert_eq!(new.get::<extended::Order>("o").unwrap().unwrap().value, extended::order(4, "by the new one"));
    write(&old, first::order(4)).unwrap();
    assert_eq!(old.state().head().unwrap().0, 4, "the same again changes nothing");
    // Retracting the entity removes the unknown fields too: an entity that the old program then creates has none of
    // them.
    old.retract::<first::Order>("o").unwrap();
    old.commit().unwrap().unwrap();
    write(&old, first::order(5)).unwrap().unwrap();
    assert_eq!(new.get::<extended::Order>("o").unwrap().unwrap().note, None);
    // There is one schema version, and its fields are unchanged for programs that know only the spellings of types.
    let versions = old.state().schema_versions::<first::Order>().unwrap();
    assert_eq!(versions.len(), 1);
    assert_eq!(versions[0].fields, first::Order::schema().fields);
    assert!(versions[0].added.keys().eq(["note", "tags"]), "{versions:?}");
}

#[test]
fn a_store_that_began_with_the_field_takes_programs_without_it() {
    let new = Session::open("memory:").unwrap();
    write(&new, extended::order(1, "kept")).unwrap().unwrap();
    write(&new.beside(), first::order(2)).unwrap().unwrap();
    assert_eq!(new.get::<extended::Order>("o").unwrap().unwrap().value, extended::order(2, "kept"));
}

/// A program that does not know a field writes on the condition that the field has not changed.
#[test]
fn writers_of_both_kinds_at_once_lose_nothing() {
    const EACH: u64 = 200;
    let old = session_with_first();
    let new = old.beside();
    write(&new, extended::order(1, "0")).unwrap();
    let noting = std::thread::spawn(move || {
        for n in 1..=EACH {
            new.update("o", move |order: Option<extended::Order>| {
                order.map(|order| extended::Order { note: Some(n.to_string()), ..order })
            })
            .unwrap();
            while let Err(error) = new.commit() {
                assert!(matches!(error, SessionError::Conflict { .. }), "{error}");
            }
            let read = new.get::<extended::Order>("o").unwrap().unwrap();
            assert_eq!(read.note, Some(n.to_string()), "nobody else writes notes");
        }
        new
    });
    for _ in 0..EACH {
        old.update("o", |order: Option<first::Order>| order.map(|order| first::order(order.count + 1)))
            .unwrap();
        while let Err(error) = old.commit() {
            assert!(matches!(error, SessionError::Conflict { .. }), "{error}");
        }
    }
    let new = noting.join().unwrap();
    let read = new.get::<extended::Order>("o").unwrap().unwrap();
    assert_eq!((read.count, read.note.as_deref()), (EACH + 1, Some("200")));
}

#[test]
fn a_field_that_must_be_there_is_still_drift() {
    #[derive(Entity, Clone, Debug, Serialize, Deserialize)]
    #[entity(name = "Order")]
    struct Strict {
        #[key]
        id: String,
        price: first::Price,
        count: u64,
        note: String,
    }
    #[derive(Entity, Clone, Debug, Serialize, Deserialize)]
    #[entity(name = "Order")]
    struct Other {
        #[key]
        id: String,
        price: first::Price,
        count: u64,
        note: Option<u64>,
    }
    let session = session_with_first();
    let price = first::Price { cents: 5 };
    let strict = Strict { id: "o".into(), price: price.clone(), count: 1, note: "n".into() };
    assert!(drift(write(&session.beside(), strict.clone())).contains("added `note`"));
    write(&session.beside(), extended::order(2, "n")).unwrap().unwrap();
    // From now on, rows may have `note` as text or not at all.
    let text = drift(write(&session.beside(), strict));
    assert!(text.contains("`note` was Option<String> and is String"), "{text}");
    let text = drift(write(&session.beside(), Other { id: "o".into(), price, count: 1, note: None }));
    assert!(text.contains("`note` was Option<String> and is Option<u64>"), "{text}");
}

#[test]
fn a_store_of_an_older_version_goes_on_and_learns_the_shapes() {
    let mut harness = Harness::new();
    let schema = first::Order::schema();
    let legacy = SchemaRow { version: 1, fields: schema.fields.clone(), ..SchemaRow::default() };
    let key = keys::state_type(harness.state.namespace(), first::Order::KIND, first::Order::TYPE);
    let text = String::from_utf8(legacy.encode().to_vec()).unwrap();
    assert!(!text.contains("shapes") && !text.contains("added") && !text.contains("optional"), "{text}");
    let put = Op::Put { space: Space::Schemas, key, value: legacy.encode() };
    harness.write(Vec::new(), vec![put]).unwrap();
    harness.ensure(first::order(1));
    assert!(harness.commit().is_some());
    let learnt = harness.state.schema_versions::<first::Order>().unwrap().pop().unwrap();
    assert_eq!((&learnt.fields, &learnt.shapes, learnt.version), (&schema.fields, &schema.shapes, 1));
    harness.ensure(first::order(2));
    assert!(harness.commit().is_some());
    let mut other = harness.another();
    let price = nested::Price { cents: 5, currency: "EUR".into() };
    other.ensure(nested::Order { id: "o".into(), price, count: 2 });
    assert!(matches!(other.try_commit(&[]), Err(StateError::SchemaOutdated(_))));
}
