//! The capability calls: list the granted capabilities, and open them.

use std::sync::Arc;

use millrace_reactor::HandleNumber;
use millrace_reactor::ZabiError;
use millrace_reactor::zcl1::{FieldError, FieldReader};

use super::{Process, returned};
use crate::aio::AioHandle;
use crate::async_default::AsyncHandle;
use crate::bus::BusHandle;
use crate::catalog::Capability;
use crate::http::HttpHandle;
use crate::memory::GuestMemory;
use crate::proc_lists::ListHandle;
use crate::sys_info::InfoHandle;
use crate::sys_loop::GuestLoop;
use crate::tcp;
use crate::wait::Waiter;

const OPEN_REQUEST_BYTES: u32 = 40;

/// A range of the guest's memory, as a request names it.
struct MemoryRange {
    address: u64,
    length: u32,
}

/// The record that `zi_cap_open` points to.
struct OpenRequest {
    kind: MemoryRange,
    name: MemoryRange,
    mode: u32,
    params: MemoryRange,
}

impl OpenRequest {
    fn decode(bytes: &[u8]) -> Result<OpenRequest, FieldError> {
        let mut fields = FieldReader::new(bytes);
        let mut place = || Ok(MemoryRange { address: fields.u64()?, length: fields.u32()? });
        let (kind, name) = (place()?, place()?);
        let mode = fields.u32()?;
        let params = MemoryRange { address: fields.u64()?, length: fields.u32()? };
        Ok(OpenRequest { kind, name, mode, params })
    }
}

impl Process {
    /// Returns how many capabilities are granted.
    pub fn zi_cap_count(&self) -> i32 {
        returned(Ok(self.granted.len()))
    }

    /// Returns the length of an entry of the list.
    pub fn zi_cap_get_size(&self, index: i32) -> i32 {
        returned(self.entry(index).map(|entry| entry.len()))
    }

    /// Writes an entry of the list: kind, name, flags.
    pub fn zi_cap_get(&self, memory: &mut dyn GuestMemory, index: i32, address: u64, length: u32) -> i32 {
        returned(self.entry(index).and_then(|entry| {
            let to = memory.bytes_mut(address, length)?;
            to.get_mut(..entry.len()).ok_or(ZabiError::Bounds)?.copy_from_slice(&entry);
            Ok(entry.len())
        }))
    }

    /// Opens a capability; returns its handle.
    pub fn zi_cap_open(&mut self, memory: &mut dyn GuestMemory, request: u64) -> i32 {
        returned(self.open(memory, request).map(|number| number.get() as usize))
    }

    fn entry(&self, index: i32) -> Result<Vec<u8>, ZabiError> {
        let index = usize::try_from(index).map_err(|_| ZabiError::NoEntry)?;
        let capability = self.granted.get(index).ok_or(ZabiError::NoEntry)?;
        let mut entry = Vec::new();
        capability.encode(&mut entry);
        Ok(entry)
    }

    fn open(&mut self, memory: &mut dyn GuestMemory, request: u64) -> Result<HandleNumber, ZabiError> {
        if self.is_ended() {
            return Err(ZabiError::Closed);
        }
        let request = OpenRequest::decode(memory.bytes(request, OPEN_REQUEST_BYTES)?)
            .map_err(|_| ZabiError::Internal)?;
        if request.mode != 0 || request.kind.length == 0 || request.name.length == 0 {
            return Err(ZabiError::Invalid);
        }
        let (kind, name) = (self.field(memory, &request.kind)?, self.field(memory, &request.name)?);
        let capability = Capability::named(&kind, &name).ok_or(ZabiError::NoEntry)?;
        if !self.grants.has(capability) {
            tracing::debug!(guest = self.name, ?capability, "a guest opened what it was not granted");
            return Err(ZabiError::Denied);
        }
        let params = self.field(memory, &request.params)?;
        match capability {
            Capability::NetTcp => self.open_tcp(memory, &params),
            _ if !params.is_empty() => Err(ZabiError::Invalid),
            Capability::SysLoop => {
                let (limits, signals) = (&self.limits, &self.signals);
                self.handles.open_loop(|| {
                    GuestLoop::open(limits, signals).map_err(|error| {
                        tracing::error!(%error, guest = self.name, "a loop could not be opened");
                        ZabiError::Internal
                    })
                })
            }
            Capability::ProcArgv | Capability::ProcEnv => self.open_list(capability),
            Capability::AsyncDefault => {
                let handle = AsyncHandle::new(self.limits.futures_max, self.signals.new_source());
                self.handles.open(Box::new(handle))
            }
            Capability::EventBus => self.open_bus(),
            Capability::FileAio => self.open_aio(),
            Capability::SysInfo => self.handles.open(Box::new(InfoHandle::new())),
            Capability::NetHttp => self.open_http(),
        }
    }

    fn open_aio(&mut self) -> Result<HandleNumber, ZabiError> {
        let root = self.grants.file_aio.clone().ok_or(ZabiError::Denied)?;
        let signal = self.signals.new_source();
        let share = self.budget.share();
        let handle = AioHandle::new(root, self.limits.aio(), share, signal, &self.file_workers);
        self.handles.open(Box::new(handle))
    }

    fn open_bus(&mut self) -> Result<HandleNumber, ZabiError> {
        let bus = self.grants.event_bus.clone().ok_or(ZabiError::Denied)?;
        let waiter = Waiter::new(Arc::clone(&self.signals), self.limits.bus_wait_ms_max);
        let (share, signal) = (self.budget.share(), self.signals.new_source());
        let handle = BusHandle::new(bus, self.limits.bus(), share, signal, waiter);
        self.handles.open(Box::new(handle))
    }

    fn open_http(&mut self) -> Result<HandleNumber, ZabiError> {
        let allowed = self.grants.net_http.clone().ok_or(ZabiError::Denied)?;
        let handle = HttpHandle::new(allowed, &self.limits, self.budget.share(), &self.signals, &self.http);
        self.handles.open(Box::new(handle))
    }

    fn open_list(&mut self, capability: Capability) -> Result<HandleNumber, ZabiError> {
        let texts = if capability == Capability::ProcArgv { &self.grants.argv } else { &self.grants.env };
        let list = ListHandle::new(texts.as_ref().ok_or(ZabiError::Denied)?);
        self.handles.open(Box::new(list))
    }

    fn open_tcp(&mut self, memory: &mut dyn GuestMemory, params: &[u8]) -> Result<HandleNumber, ZabiError> {
        let policy = self.grants.net_tcp.as_ref().ok_or(ZabiError::Denied)?;
        let params = tcp::OpenParams::decode(params, memory)?;
        params.check(policy)?;
        self.handles.reserve_socket()?;
        let opened = tcp::open(&params, memory, &self.limits);
        let number = opened.and_then(|handle| self.handles.open(handle));
        number.inspect_err(|_| self.handles.release_socket())
    }

    fn field(&self, memory: &dyn GuestMemory, place: &MemoryRange) -> Result<Vec<u8>, ZabiError> {
        let bytes = memory.bytes(place.address, place.length)?;
        if place.length > self.limits.open_field_bytes_max {
            return Err(ZabiError::Bounds);
        }
        Ok(bytes.to_vec())
    }
}
