//! A field of an entity or relation by name, with the type of its owner and of its value.

use std::fmt;
use std::marker::PhantomData;

/// `T`'s field that holds a `V`.
pub struct Field<T, V> {
    name: &'static str,
    types: PhantomData<fn() -> (T, V)>,
}

impl<T, V> Field<T, V> {
    /// By its name in JSON. The derives call this; a wrong name reads as a field that is always absent.
    pub const fn new(name: &'static str) -> Field<T, V> {
        Field { name, types: PhantomData }
    }

    pub fn name(self) -> &'static str {
        self.name
    }
}

// Not derived: that would ask the same of `T` and `V`.
impl<T, V> Clone for Field<T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for Field<T, V> {}

impl<T, V> fmt::Debug for Field<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
