//! Values that a program gives to its handlers: a pool, a client, settings. A session has at most one value per type.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{Result, SessionError};

type Value = Arc<dyn Any + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct SessionData(BTreeMap<TypeId, (&'static str, Value)>);

impl SessionData {
    /// Adds a value. A second value of a type replaces the first.
    pub(crate) fn with<T: Any + Send + Sync>(&self, value: T) -> SessionData {
        let mut values = self.0.clone();
        values.insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(value)));
        SessionData(values)
    }

    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Result<Arc<T>> {
        let found = self.0.get(&TypeId::of::<T>()).and_then(|(_, value)| value.clone().downcast().ok());
        found.ok_or(SessionError::NoData { wanted: type_name::<T>() })
    }
}

impl fmt::Debug for SessionData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values().map(|(name, _)| name)).finish()
    }
}
