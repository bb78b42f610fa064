//! Converts typed state to intents.

use millrace_model::{Identity, Intent, StateKind};

use super::canonical::canonical;
use super::entity::{Entity, Key, Relation, Stateful};
use super::schema::Schema;
use crate::error::StateError;

/// The most bytes of a key; a relation's three keys are counted separately. Keys become parts of the keys of rows.
pub const KEY_BYTES_MAX: usize = 1024;

/// Marks the implementation for a single value.
#[derive(Debug)]
pub enum One {}
/// Marks the implementation for everything that can be iterated.
#[derive(Debug)]
pub enum Many {}

/// The declarations of a call of `ensure` or `retract`: intents of a type, and the schema of the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub kind: StateKind,
    pub schema: Schema,
    /// The schema version of the intents is filled in when the schema is looked up, before the commit.
    pub intents: Vec<Intent>,
}

/// An entity, a relation, or an iterator of either. The type parameter only separates the two implementations and is
/// always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither an entity, nor a relation, nor an iterator of one of them",
    note = "derive it: #[derive(Entity, Serialize, Deserialize)] with one #[key] field"
)]
pub trait IntoIntents<How> {
    /// Returns all intents, or the first error.
    fn into_intents(self) -> Result<Declared, StateError>;
}

impl<T: Stateful> IntoIntents<One> for T {
    fn into_intents(self) -> Result<Declared, StateError> {
        Ok(Declared::of::<T>(vec![intent_of(&self)?]))
    }
}

impl<I> IntoIntents<Many> for I
where
    I: IntoIterator,
    I::Item: Stateful,
{
    fn into_intents(self) -> Result<Declared, StateError> {
        let intents: Result<_, _> = self.into_iter().map(|item| intent_of(&item)).collect();
        Ok(Declared::of::<I::Item>(intents?))
    }
}

impl Declared {
    fn of<T: Stateful>(intents: Vec<Intent>) -> Declared {
        Declared { kind: T::KIND, schema: T::schema(), intents }
    }

    /// Declares that the entity with this key does not exist.
    pub fn without_entity<T: Entity>(key: impl Key) -> Result<Declared, StateError> {
        Declared::without::<T>(entity_identity::<T>(key))
    }

    /// Declares that the relation between these two does not exist. The instance key is empty for types that declare
    /// none.
    pub fn without_relation<R: Relation>(
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<Declared, StateError> {
        Declared::without::<R>(relation_identity::<R>(left, right, instance))
    }

    fn without<T: Stateful>(identity: Identity) -> Result<Declared, StateError> {
        check_keys::<T>(&identity)?;
        Ok(Declared::of::<T>(vec![Intent { identity, fields: None, schema: 0 }]))
    }
}

pub fn entity_identity<T: Entity>(key: impl Key) -> Identity {
    Identity::Entity { type_name: T::TYPE.to_owned(), key: key.into_key() }
}

pub fn relation_identity<R: Relation>(left: impl Key, right: impl Key, instance: impl Key) -> Identity {
    Identity::Relation {
        type_name: R::TYPE.to_owned(),
        left_key: left.into_key(),
        right_key: right.into_key(),
        instance_key: instance.into_key(),
    }
}

pub(super) fn intent_of<T: Stateful>(state: &T) -> Result<Intent, StateError> {
    let identity = state.identity();
    check_keys::<T>(&identity)?;
    let unwritable = |source| StateError::Unwritable { type_name: T::TYPE.to_owned(), source };
    let fields = canonical(state).map_err(unwritable)?;
    // As for events: better refused here than found unreadable by every later reader.
    serde_json::from_str::<T>(fields.as_str()).map_err(|error| StateError::Unreadable {
        type_name: T::TYPE.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(Intent { identity, fields: Some(fields), schema: 0 })
}

pub(super) fn check_keys<T: Stateful>(identity: &Identity) -> Result<(), StateError> {
    let type_name = identity.type_name();
    let keys: &[(&'static str, &str)] = match identity {
        Identity::Entity { key, .. } => &[("key", key)],
        Identity::Relation { left_key, right_key, instance_key, .. } if T::HAS_INSTANCE_KEY => {
            &[("left key", left_key), ("right key", right_key), ("instance key", instance_key)]
        }
        Identity::Relation { instance_key, .. } if !instance_key.is_empty() => {
            return Err(StateError::NoInstanceKey { type_name: type_name.to_owned() });
        }
        Identity::Relation { left_key, right_key, .. } => &[("left key", left_key), ("right key", right_key)],
    };
    if let Some((role, _)) = keys.iter().find(|(_, key)| key.is_empty()) {
        return Err(StateError::EmptyKey { type_name: type_name.to_owned(), role });
    }
    let bytes = keys.iter().map(|(_, key)| key.len()).max().unwrap_or(0);
    if bytes > KEY_BYTES_MAX {
        return Err(StateError::KeyTooLong { type_name: type_name.to_owned(), bytes, max: KEY_BYTES_MAX });
    }
    Ok(())
}
