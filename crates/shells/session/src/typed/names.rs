//! Which type of the program has which event name. Two types that have the same name by accident (`orders::Created` and
//! `users::Created` are both `created`) would decode each other's events, or dead-letter them.

use std::collections::BTreeMap;

use parking_lot::RwLock;

use super::event::Event;
use super::outgoing::EventError;

/// A type of the program and its event name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventName {
    pub event_type: &'static str,
    /// The name of the type with its module path.
    pub rust_type: &'static str,
    /// The name was given explicitly, not derived. A type that is explicitly given the name of another type means the
    /// same events.
    pub given: bool,
}

impl EventName {
    pub fn of<E: Event>() -> EventName {
        EventName { event_type: E::TYPE, rust_type: std::any::type_name::<E>(), given: E::NAME_GIVEN }
    }
}

/// All event names that a program has used with a store so far; at most as many as it has event types.
#[derive(Debug, Default)]
pub(crate) struct EventNames(RwLock<BTreeMap<&'static str, EventName>>);

impl EventNames {
    pub(crate) fn know(&self, name: EventName) -> Result<(), EventError> {
        let known = self.0.read().get(name.event_type).copied();
        match known {
            Some(known) if known.rust_type == name.rust_type || name.given => return Ok(()),
            Some(known) if !known.given => {
                let (first, second) = (known.rust_type, name.rust_type);
                return Err(EventError::NameShared { event_type: name.event_type, first, second });
            }
            _ => {}
        }
        // Another thread may insert another type at the same time: then the later one is refused with its next event.
        self.0.write().insert(name.event_type, name);
        Ok(())
    }
}
