//! The handle table of one guest: the value behind each handle number, and the choice of the next number.
//!
//! Numbers rise and are reused only after all higher ones were used, so that a number which a guest kept by mistake
//! does not soon stand for another handle. A number that is still watched is not reused at all: the watch of an ended
//! handle stays installed until UNWATCH, and must not report the handle's successor.

use std::collections::BTreeMap;

use thiserror::Error;

/// The number of a handle as the guest knows it: an `i32` that is not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleNumber(u32);

/// The numbers 0, 1 and 2 are standard input, output and error; the embedding program provides them.
pub const FIRST_HANDLE: HandleNumber = HandleNumber(3);

const LAST_HANDLE: HandleNumber = HandleNumber(i32::MAX as u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleLimits {
    /// Handles open at once. Beyond it: [`HandlesFull`].
    pub handles_max: usize,
    /// The highest number given out. Lower values keep numbers small and make them be reused sooner.
    pub number_max: HandleNumber,
}

/// The guest holds as many handles as it may, or every number is open or watched. The guest must end a handle first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the guest holds {open} handles and no number is free")]
pub struct HandlesFull {
    pub open: usize,
}

#[derive(Debug)]
pub struct HandleTable<T> {
    open: BTreeMap<HandleNumber, T>,
    next: HandleNumber,
    limits: HandleLimits,
}

impl HandleNumber {
    /// Returns the handle number; `None` for numbers that are negative as `i32`.
    pub fn new(number: u32) -> Option<HandleNumber> {
        (number <= LAST_HANDLE.0).then_some(HandleNumber(number))
    }

    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for HandleLimits {
    fn default() -> Self {
        HandleLimits { handles_max: 1 << 17, number_max: LAST_HANDLE }
    }
}

impl<T> HandleTable<T> {
    pub fn new(limits: HandleLimits) -> HandleTable<T> {
        HandleTable { open: BTreeMap::new(), next: FIRST_HANDLE, limits }
    }

    /// Opens a handle. `is_watched` tells whether a loop of this guest has a watch on a number.
    ///
    /// # Errors
    ///
    /// [`HandlesFull`]
    pub fn open(
        &mut self,
        value: T,
        is_watched: impl Fn(HandleNumber) -> bool,
    ) -> Result<HandleNumber, HandlesFull> {
        let full = HandlesFull { open: self.open.len() };
        if self.open.len() >= self.limits.handles_max {
            return Err(full);
        }
        let is_free = |number: &HandleNumber| !self.open.contains_key(number) && !is_watched(*number);
        let number = self.numbers_from_next().find(is_free).ok_or(full)?;
        self.next = self.successor(number);
        self.open.insert(number, value);
        Ok(number)
    }

    pub fn get(&self, number: HandleNumber) -> Option<&T> {
        self.open.get(&number)
    }

    pub fn get_mut(&mut self, number: HandleNumber) -> Option<&mut T> {
        self.open.get_mut(&number)
    }

    /// Ends a handle; returns its value, or `None` if no such handle is open.
    pub fn close(&mut self, number: HandleNumber) -> Option<T> {
        self.open.remove(&number)
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the open handles in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (HandleNumber, &T)> {
        self.open.iter().map(|(number, value)| (*number, value))
    }

    /// Every number once, beginning with `next`. A search through them ends early: it passes only over open and watched
    /// numbers, and both are bounded.
    fn numbers_from_next(&self) -> impl Iterator<Item = HandleNumber> + use<T> {
        let (first, next, last) = (FIRST_HANDLE.0, self.next.0, self.limits.number_max.0);
        (next..=last).chain(first..next).map(HandleNumber)
    }

    fn successor(&self, number: HandleNumber) -> HandleNumber {
        match number < self.limits.number_max {
            true => HandleNumber(number.0 + 1),
            false => FIRST_HANDLE,
        }
    }
}
