//! The lock, the condition variable and the clock of the inbox, for the model checker: in the place of `src/sync.rs`.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use crate::schedule::Wake;
use crate::world;

#[derive(Debug)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` while the thread waits.
    guard: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, guard: Some(self.0.lock().unwrap()) }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().unwrap()
    }
}

/// Threads sleep in the world, which has the clock.
#[derive(Debug)]
pub(crate) struct Condvar;

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) {
        let sleep = world::fall_asleep(until);
        guard.guard = None;
        sleep.wait();
        guard.guard = Some(guard.mutex.0.lock().unwrap());
    }
}

pub(crate) fn now() -> Instant {
    world::now()
}

pub(crate) fn notify(_: &Condvar, wake: Wake) {
    // Others may go on between the lock and the wake-up.
    shuttle::thread::yield_now();
    world::wake(wake);
}
