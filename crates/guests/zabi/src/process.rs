//! A guest process: its calls, its handles, and the end of both.

mod control;
mod open;
mod transfer;

use std::sync::Arc;

use millrace_reactor::{HandleNumber, ZabiError};

use crate::aio::WorkerPool;
use crate::budget::ByteBudget;
use crate::catalog::{Capability, CapsListForm};
use crate::grants::Grants;
use crate::handle::HandleFlags;
use crate::handles::Handles;
use crate::heap::GuestHeap;
use crate::http::HttpRuntime;
use crate::limits::Limits;
use crate::memory::GuestMemory;
use crate::signals::{Interrupter, ProcessSignals};
use crate::streams::{StandardOutput, StandardStreams};

/// The result of `zi_abi_version`: 2.5.
pub const ABI_VERSION: u32 = 0x0002_0005;

/// The settings of a new process.
#[derive(Debug)]
pub struct ProcessOptions {
    /// Names the process in logs.
    pub name: String,
    pub grants: Grants,
    pub streams: StandardStreams,
    pub limits: Limits,
    /// The first free byte of the guest's memory (`__heap_base`), for `zi_alloc`. With `None` the host has no allocator
    /// for the guest; `zi_alloc` returns 0 and `zi_free` -7.
    pub heap_base: Option<u64>,
    pub caps_list: CapsListForm,
}

impl ProcessOptions {
    /// A process with these grants, without standard streams and without a heap.
    pub fn new(name: impl Into<String>, grants: Grants) -> ProcessOptions {
        ProcessOptions {
            name: name.into(),
            grants,
            streams: StandardStreams::none(),
            limits: Limits::default(),
            heap_base: None,
            caps_list: CapsListForm::default(),
        }
    }
}

/// Answers the calls of one guest. Methods named `zi_...` are the calls of zABI: they take numbers and addresses as the
/// guest gave them and return the number that the guest gets. None of them panics, whatever it is given.
///
/// A process that is dropped releases everything that it held: handles, sockets, files, threads.
///
/// ```
/// use millrace_zabi::{Grants, GuestMemory, Process, ProcessOptions, VecMemory};
///
/// let mut process = Process::new(ProcessOptions::new("hello", Grants::none().sys_loop()));
/// let mut memory = VecMemory::new(65_536);
/// memory.bytes_mut(8, 5)?.copy_from_slice(b"hello");
/// assert_eq!(process.zi_write(&mut memory, 1, 8, 5), 5);
/// assert_eq!(process.zi_cap_count(), 1);
/// assert_eq!(process.zi_write(&mut memory, 1, 65_532, 5), -2, "the range leaves the memory");
/// # Ok::<(), millrace_zabi::OutOfBounds>(())
/// ```
#[derive(Debug)]
pub struct Process {
    name: String,
    grants: Grants,
    granted: Vec<Capability>,
    limits: Limits,
    streams: StandardStreams,
    handles: Handles,
    heap: Option<GuestHeap>,
    caps_list: CapsListForm,
    signals: Arc<ProcessSignals>,
    budget: Arc<ByteBudget>,
    /// Started by the first request of `file/aio`.
    file_workers: Arc<WorkerPool>,
    /// Started by the first listener of `net/http`.
    http: Arc<HttpRuntime>,
}

/// The thing that the number of a handle stands for.
enum HandleTarget {
    Input,
    Output(StandardOutput),
    Loop(HandleNumber),
    Handle(HandleNumber),
}

impl Process {
    pub fn new(options: ProcessOptions) -> Process {
        Process {
            name: options.name,
            budget: ByteBudget::new(options.limits.queued_bytes_max, options.grants.event_bus.clone()),
            granted: options.grants.list(),
            grants: options.grants,
            handles: Handles::new(&options.limits),
            file_workers: WorkerPool::new(options.limits.aio_threads_max),
            heap: options.heap_base.map(|base| GuestHeap::new(base, options.limits.allocations_max)),
            http: HttpRuntime::new(options.limits.http_connections_max),
            limits: options.limits,
            streams: options.streams,
            caps_list: options.caps_list,
            signals: Arc::default(),
        }
    }

    /// Returns a handle for other threads, which can end waits of this process, or the process.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::clone(&self.signals))
    }

    /// Whether [`Interrupter::end`] was called: the binding stops the guest's code.
    pub fn is_ended(&self) -> bool {
        self.signals.is_ended()
    }

    /// Sets the first free byte of the guest's memory, for a binding that learns it after the process was made. Blocks
    /// that were allocated before are forgotten.
    pub fn set_heap_base(&mut self, base: u64) {
        self.heap = Some(GuestHeap::new(base, self.limits.allocations_max));
    }

    /// Returns the number of open handles; 0, 1 and 2 do not count.
    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    pub fn zi_abi_version(&self) -> u32 {
        ABI_VERSION
    }

    /// Reads up to `length` bytes to `address`. Returns their number; 0 at the end of a byte stream.
    pub fn zi_read(&mut self, memory: &mut dyn GuestMemory, handle: i32, address: u64, length: u32) -> i32 {
        returned(self.read(memory, handle, address, length))
    }

    /// Writes up to `length` bytes from `address`. Returns how many were taken.
    pub fn zi_write(&mut self, memory: &mut dyn GuestMemory, handle: i32, address: u64, length: u32) -> i32 {
        returned(self.write(memory, handle, address, length))
    }

    /// Ends a handle. Ending 0, 1 or 2 does nothing.
    pub fn zi_end(&mut self, handle: i32) -> i32 {
        let ended = self.target(handle).and_then(|target| match target {
            HandleTarget::Input | HandleTarget::Output(_) => Ok(0),
            HandleTarget::Loop(number) | HandleTarget::Handle(number) => {
                self.handles.close(number).then_some(0).ok_or(ZabiError::NotSupported)
            }
        });
        returned(ended)
    }

    /// Returns the address of a new block of memory; 0 if there is none.
    pub fn zi_alloc(&mut self, memory: &mut dyn GuestMemory, size: u32) -> u64 {
        self.heap.as_mut().and_then(|heap| heap.alloc(size, memory)).unwrap_or(0)
    }

    pub fn zi_free(&mut self, address: u64) -> i32 {
        returned(match &mut self.heap {
            None => Err(ZabiError::NotSupported),
            Some(heap) => heap.free(address).then_some(0).ok_or(ZabiError::Invalid),
        })
    }

    /// Writes a message of the guest to the host's log, as one line. Bytes that are not UTF-8 and control characters
    /// are made readable.
    pub fn zi_telemetry(
        &mut self,
        memory: &mut dyn GuestMemory,
        topic: u64,
        topic_bytes: u32,
        message: u64,
        message_bytes: u32,
    ) -> i32 {
        let max = self.limits.telemetry_bytes_max;
        let text = |address, length: u32| -> Result<String, ZabiError> {
            memory.bytes(address, length)?;
            Ok(one_line(&String::from_utf8_lossy(memory.bytes(address, length.min(max))?)))
        };
        let texts = text(topic, topic_bytes).and_then(|topic| Ok((topic, text(message, message_bytes)?)));
        returned(texts.map(|(topic, message)| {
            tracing::info!(target: "millrace::guest", guest = self.name, topic, "{message}");
            0
        }))
    }

    pub fn zi_handle_hflags(&mut self, handle: i32) -> u32 {
        let flags = match self.target(handle) {
            Err(_) => HandleFlags::NONE,
            Ok(HandleTarget::Input) => HandleFlags::READ,
            Ok(HandleTarget::Output(_)) => HandleFlags::WRITE,
            Ok(HandleTarget::Loop(_)) => HandleFlags::READ_WRITE,
            Ok(HandleTarget::Handle(number)) => {
                self.handles.get(number).map_or(HandleFlags::NONE, |handle| handle.flags())
            }
        };
        flags.0
    }

    /// Finds the target of a call. Every call with a handle begins here.
    fn target(&self, handle: i32) -> Result<HandleTarget, ZabiError> {
        if self.signals.is_ended() {
            return Err(ZabiError::Closed);
        }
        match handle {
            0 => Ok(HandleTarget::Input),
            1 => Ok(HandleTarget::Output(StandardOutput::Output)),
            2 => Ok(HandleTarget::Output(StandardOutput::Error)),
            _ => {
                let number = u32::try_from(handle).ok().and_then(HandleNumber::new);
                // The reference's error for a handle number that was never open, or is no longer.
                let number = number.ok_or(ZabiError::NotSupported)?;
                match self.handles.is_loop(number) {
                    true => Ok(HandleTarget::Loop(number)),
                    false if self.handles.contains(number) => Ok(HandleTarget::Handle(number)),
                    false => Err(ZabiError::NotSupported),
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.handles.close_all();
        self.file_workers.stop();
        self.http.stop();
    }
}

/// Escapes control characters, so that no text of a guest looks like another line of the log.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}

/// Returns the number for the guest.
fn returned(result: Result<usize, ZabiError>) -> i32 {
    match result {
        Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
        Err(error) => error.code(),
    }
}
