//! The handles of one process, its loops kept separately: which numbers are open, and opening new ones.

use std::collections::BTreeMap;

use millrace_reactor::{HandleLimits, HandleNumber, HandleTable, ZabiError};

use crate::handle::{OpenHandle, WatchSource};
use crate::limits::Limits;
use crate::sys_loop::GuestLoop;

/// The thing that a number stands for.
#[derive(Debug)]
enum HandleSlot {
    /// The loop is in `loops`.
    Loop,
    Handle(Box<dyn OpenHandle>),
    /// The handle is in use by a call.
    InUse,
}

#[derive(Debug)]
pub(crate) struct Handles {
    table: HandleTable<HandleSlot>,
    /// `None` while a call of the loop runs.
    loops: BTreeMap<HandleNumber, Option<Box<GuestLoop>>>,
    sockets: usize,
    sockets_max: usize,
    loops_max: usize,
    handle_limits: HandleLimits,
}

impl Handles {
    pub(crate) fn new(limits: &Limits) -> Handles {
        Handles {
            table: HandleTable::new(limits.handles),
            loops: BTreeMap::new(),
            sockets: 0,
            sockets_max: limits.sockets_max,
            loops_max: limits.loops_max,
            handle_limits: limits.handles,
        }
    }

    pub(crate) fn open(&mut self, handle: Box<dyn OpenHandle>) -> Result<HandleNumber, ZabiError> {
        self.insert(HandleSlot::Handle(handle))
    }

    /// `make` is called if there is room for one more loop.
    pub(crate) fn open_loop(
        &mut self,
        make: impl FnOnce() -> Result<GuestLoop, ZabiError>,
    ) -> Result<HandleNumber, ZabiError> {
        if self.loops.len() >= self.loops_max || !self.has_room() {
            return Err(ZabiError::OutOfMemory);
        }
        let guest_loop = make()?;
        let number = self.insert(HandleSlot::Loop)?;
        self.loops.insert(number, Some(Box::new(guest_loop)));
        Ok(number)
    }

    /// Whether one more handle can be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.table.len() < self.handle_limits.handles_max
    }

    /// Counts a socket against its limit.
    pub(crate) fn reserve_socket(&mut self) -> Result<(), ZabiError> {
        if self.sockets >= self.sockets_max || !self.has_room() {
            return Err(ZabiError::OutOfMemory);
        }
        self.sockets += 1;
        Ok(())
    }

    pub(crate) fn release_socket(&mut self) {
        self.sockets = self.sockets.saturating_sub(1);
    }

    pub(crate) fn contains(&self, number: HandleNumber) -> bool {
        self.table.get(number).is_some()
    }

    pub(crate) fn get(&self, number: HandleNumber) -> Option<&dyn OpenHandle> {
        match self.table.get(number)? {
            HandleSlot::Handle(handle) => Some(&**handle),
            HandleSlot::Loop | HandleSlot::InUse => None,
        }
    }

    pub(crate) fn watch_source(&self, number: HandleNumber) -> Option<WatchSource> {
        self.get(number)?.watch_source()
    }

    pub(crate) fn get_loop(&mut self, number: HandleNumber) -> Option<&mut GuestLoop> {
        self.loops.get_mut(&number)?.as_deref_mut()
    }

    pub(crate) fn is_loop(&self, number: HandleNumber) -> bool {
        self.loops.contains_key(&number)
    }

    pub(crate) fn loops_mut(&mut self) -> impl Iterator<Item = &mut GuestLoop> {
        self.loops.values_mut().filter_map(|guest_loop| guest_loop.as_deref_mut())
    }

    /// Runs `call` with a loop and the other handles.
    pub(crate) fn with_loop<R>(
        &mut self,
        number: HandleNumber,
        call: impl FnOnce(&mut GuestLoop, &Handles) -> R,
    ) -> Option<R> {
        let mut guest_loop = self.loops.get_mut(&number)?.take()?;
        let result = call(&mut guest_loop, self);
        self.loops.insert(number, Some(guest_loop));
        Some(result)
    }

    /// Runs `call` with a handle that is not a loop, and the table without it.
    pub(crate) fn with_handle<R>(
        &mut self,
        number: HandleNumber,
        call: impl FnOnce(&mut dyn OpenHandle, &mut Handles) -> R,
    ) -> Option<R> {
        let slot = self.table.get_mut(number)?;
        if !matches!(slot, HandleSlot::Handle(_)) {
            return None;
        }
        let HandleSlot::Handle(mut handle) = std::mem::replace(slot, HandleSlot::InUse) else { return None };
        let result = call(&mut *handle, self);
        if let Some(slot) = self.table.get_mut(number) {
            *slot = HandleSlot::Handle(handle);
        }
        Some(result)
    }

    /// Ends a handle; returns false if no such handle is open. Loops forget it while its descriptor is still open: the
    /// operating system may give the same descriptor to the next handle.
    pub(crate) fn close(&mut self, number: HandleNumber) -> bool {
        let mut loops = std::mem::take(&mut self.loops);
        for guest_loop in loops.values_mut().flatten() {
            guest_loop.end_handle(number, self);
        }
        if let Some(mut ended) = loops.remove(&number).flatten() {
            ended.close(self);
        }
        self.loops = loops;
        match self.table.close(number) {
            Some(HandleSlot::Handle(handle)) => {
                if matches!(handle.watch_source(), Some(WatchSource::Descriptor(_))) {
                    self.release_socket();
                }
                true
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Ends every handle, loops first.
    pub(crate) fn close_all(&mut self) {
        let loops: Vec<HandleNumber> = self.loops.keys().copied().collect();
        loops.into_iter().for_each(|number| {
            self.close(number);
        });
        let others: Vec<HandleNumber> = self.table.iter().map(|(number, _)| number).collect();
        others.into_iter().for_each(|number| {
            self.close(number);
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    fn insert(&mut self, slot: HandleSlot) -> Result<HandleNumber, ZabiError> {
        let loops = &self.loops;
        let is_watched =
            |number| loops.values().flatten().any(|guest_loop| guest_loop.watches_handle(number));
        self.table.open(slot, is_watched).map_err(|_| ZabiError::OutOfMemory)
    }
}
