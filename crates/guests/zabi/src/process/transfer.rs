//! Reads and writes handles, and tells the loops of the process what that changes.

use millrace_reactor::{HandleNumber, ZabiError};

use super::{HandleTarget, Process};
use crate::handle::WatchSource;
use crate::memory::GuestMemory;
use crate::os_poller::IoEffect;

impl Process {
    pub(super) fn read(
        &mut self,
        memory: &mut dyn GuestMemory,
        handle: i32,
        address: u64,
        length: u32,
    ) -> Result<usize, ZabiError> {
        let target = self.target(handle)?;
        let to = memory.bytes_mut(address, length)?;
        let room = to.len().min(self.limits.transfer_bytes_max as usize);
        let to = &mut to[..room];
        if to.is_empty() {
            return Ok(0);
        }
        match target {
            HandleTarget::Input => self.streams.read(to),
            HandleTarget::Output(_) => Err(ZabiError::Denied),
            HandleTarget::Loop(number) => self.handles.get_loop(number).ok_or(ZabiError::Internal)?.read(to),
            HandleTarget::Handle(number) => {
                let read = self.handles.with_handle(number, |handle, handles| {
                    let result = handle.read(to, handles);
                    let is_drained = result.is_ok_and(|count| handle.is_drained(count, room));
                    let effect = match result {
                        Ok(0) => IoEffect::Other,
                        Ok(_) if is_drained => IoEffect::Drained,
                        Ok(_) => IoEffect::Read,
                        Err(ZabiError::Again) => IoEffect::Drained,
                        Err(_) => IoEffect::Other,
                    };
                    (result, effect)
                });
                let (result, effect) = read.ok_or(ZabiError::NotSupported)?;
                self.was_used(number, effect);
                result
            }
        }
    }

    pub(super) fn write(
        &mut self,
        memory: &dyn GuestMemory,
        handle: i32,
        address: u64,
        length: u32,
    ) -> Result<usize, ZabiError> {
        let target = self.target(handle)?;
        let from = memory.bytes(address, length)?;
        if from.is_empty() {
            return Ok(0);
        }
        match target {
            HandleTarget::Input => Err(ZabiError::Denied),
            HandleTarget::Output(output) => {
                let count = from.len().min(self.limits.transfer_bytes_max as usize);
                self.streams.write(output, &from[..count])
            }
            HandleTarget::Loop(number) => {
                let written =
                    self.handles.with_loop(number, |guest_loop, handles| guest_loop.write(from, handles));
                written.ok_or(ZabiError::Internal)?
            }
            HandleTarget::Handle(number) => {
                let written =
                    self.handles.with_handle(number, |handle, handles| handle.write(from, memory, handles));
                let result = written.ok_or(ZabiError::NotSupported)?;
                let effect = match result {
                    Ok(count) if count == from.len() => IoEffect::Wrote,
                    Ok(_) | Err(ZabiError::Again) => IoEffect::Filled,
                    Err(_) => IoEffect::Other,
                };
                self.was_used(number, effect);
                result
            }
        }
    }

    /// Tells every loop that the guest has used a handle, so that its readiness may have changed.
    pub(super) fn was_used(&mut self, number: HandleNumber, effect: IoEffect) {
        match self.handles.watch_source(number) {
            Some(WatchSource::Descriptor(_)) => {
                self.handles.loops_mut().for_each(|guest_loop| guest_loop.used(number, effect));
            }
            Some(WatchSource::Computed { signal, .. }) => self.signals.mark(signal),
            None => {}
        }
    }
}
