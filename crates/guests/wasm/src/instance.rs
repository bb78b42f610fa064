//! An instance of a module: its store, its functions, and the layout of the host's areas in its memory.
//!
//! The layout, for buffers of S bytes: `[0, S)` and `[S, 2S)` are left to serialized calls of pure functions, which
//! this host does not make; the handle table follows at `2S` with four bytes for each operation; buffers of runs come
//! after it, allocated upwards, and the buffer that was freed last is reused first.

mod functions;
mod growth;

use wasmtime::{AnyRef, Memory, Rooted, Store};

pub(crate) use self::functions::{EntryFunction, Functions, Resume};
pub(crate) use self::growth::Growth;
use crate::epoch;
use crate::fault::{GuestFault, Transition, TrapEffect, TrapReport};
use crate::imports;
use crate::limits::{InstanceLimits, RunLimits};
use crate::module::{Compiler, Module};

const PAGE_BYTES: u64 = 65_536;

/// Longest text of a panic that is reported; the rest is cut off.
const PANIC_BYTES_MAX: usize = 4_096;

/// Why a module could not be instantiated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstantiateError {
    #[error("{0}")]
    Instantiate(String),
    /// The start function failed, or data that the module declares does not fit its memory.
    #[error("the module did not start: {0}")]
    Start(GuestFault),
    #[error("Missing export {0}")]
    MissingExport(String),
    #[error("export {name} is not a {expected}")]
    ExportType { name: String, expected: String },
    #[error(
        "memory memory grow failed: the host's tables and a buffer of {buffer_bytes} bytes do not fit (memory_bytes_max)"
    )]
    NoRoom { buffer_bytes: u32 },
    #[error("init_effects failed: {0}")]
    Init(GuestFault),
    #[error("the handlers are those of another module")]
    OtherModule,
    #[error("{0}")]
    Host(#[from] crate::host::HostStopped),
}

/// See the file's documentation.
pub(crate) struct InstanceState {
    pub(crate) store: Store<Growth>,
    pub(crate) memory: Memory,
    pub(crate) functions: Functions,
    pub(crate) module: Module,
    pub(crate) buffers: Buffers,
    /// A buffer that is reused for every reply.
    pub(crate) scratch: Vec<u8>,
}

/// The runs' buffers: bounded by the memory they lie in.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) bytes: u32,
    next: u64,
    free: Vec<u32>,
}

impl InstanceState {
    pub(crate) fn new(
        compiler: &Compiler,
        module: &Module,
        limits: &InstanceLimits,
    ) -> Result<InstanceState, InstantiateError> {
        let growth = Growth::new(limits.memory_bytes_max, limits.table_elements_max);
        let mut store = Store::new(compiler.engine(), growth);
        store.limiter(|growth| growth);
        let start = limits.start();
        arm(&mut store, &start);
        let imports = imports::provide(&mut store, module)?;
        let instance = wasmtime::Instance::new(&mut store, &module.code, &imports);
        let instance = instance.map_err(|error| not_instantiated(&error, &start))?;
        let memory = instance.get_memory(&mut store, "memory");
        let memory = memory.filter(|memory| !memory.ty(&store).is_64());
        let memory = memory.ok_or_else(|| functions::export_type("memory", "32-bit memory"))?;
        let functions = Functions::find(&mut store, instance, module.info.generation)?;
        let bytes = limits.buffer_bytes(module.info.generation);
        let table_at = u64::from(bytes) * 2;
        let table_bytes = 4 * module.info.table.len() as u64;
        let buffers = Buffers { bytes, next: (table_at + table_bytes).next_multiple_of(8), free: Vec::new() };
        let scratch = Vec::new();
        let mut state = InstanceState { store, memory, functions, module: module.clone(), buffers, scratch };
        state.init_effects(table_at, &start)?;
        Ok(state)
    }

    /// Writes the handle table, each operation's handle being its position, and tells the module where it is.
    fn init_effects(&mut self, table_at: u64, limits: &RunLimits) -> Result<(), InstantiateError> {
        let no_room = InstantiateError::NoRoom { buffer_bytes: self.buffers.bytes };
        let handles: Vec<u8> =
            (0..).zip(&self.module.info.table).flat_map(|(index, _)| u32::to_le_bytes(index)).collect();
        let end = table_at + handles.len() as u64;
        let (Ok(address), true) = (u32::try_from(table_at), self.ensure_memory(end)) else {
            return Err(no_room);
        };
        self.memory.write(&mut self.store, address as usize, &handles).map_err(|_| no_room)?;
        let init = self.functions.init_effects.clone();
        self.arm(limits);
        init.call(&mut self.store, address.cast_signed())
            .map_err(|error| InstantiateError::Init(self.fault(&error, Transition::Start, None, limits)))
    }

    /// Grows the memory until it has `end` bytes, if the limit allows it.
    fn ensure_memory(&mut self, end: u64) -> bool {
        let have = self.memory.data_size(&self.store) as u64;
        let pages = end.saturating_sub(have).div_ceil(PAGE_BYTES);
        pages == 0 || self.memory.grow(&mut self.store, pages).is_ok()
    }

    pub(crate) fn take_buffer(&mut self) -> Result<u32, GuestFault> {
        if let Some(buffer) = self.buffers.free.pop() {
            return Ok(buffer);
        }
        let buffer_bytes = self.buffers.bytes;
        let no_room = GuestFault::NoRoomForBuffer { buffer_bytes };
        let start = self.buffers.next;
        let end = (start + u64::from(buffer_bytes)).next_multiple_of(8);
        match u32::try_from(start) {
            // The guest gets addresses as i32 and reads them as u32; the end must be an address, too.
            Ok(buffer) if u32::try_from(end).is_ok() && self.ensure_memory(end) => {
                self.buffers.next = end;
                Ok(buffer)
            }
            _ => Err(no_room),
        }
    }

    pub(crate) fn give_back_buffer(&mut self, buffer: u32) {
        self.buffers.free.push(buffer);
    }

    /// Allows the next step its fuel and time.
    pub(crate) fn arm(&mut self, limits: &RunLimits) {
        arm(&mut self.store, limits);
    }

    /// Turns an error of wasmtime into a fault, with everything that can be found out about it.
    pub(crate) fn fault(
        &mut self,
        error: &wasmtime::Error,
        transition: Transition,
        effect: Option<TrapEffect>,
        limits: &RunLimits,
    ) -> GuestFault {
        let mut fault = fault_of(error, transition, effect, limits);
        if let GuestFault::Trap(report) = &mut fault {
            report.panic = self.take_panic();
        }
        fault
    }

    /// Reads the text that the module left about its panic, and clears it for the next one.
    fn take_panic(&mut self) -> Option<String> {
        let (at, len) = self.functions.panic?;
        let read = |store: &mut Store<Growth>, global: wasmtime::Global| global.get(store).i32();
        let start = read(&mut self.store, at)?;
        let bytes = read(&mut self.store, len)?;
        if start < 0 && bytes == 0 {
            return None;
        }
        // Both are mutable globals of type i32, so writing them does not fail.
        let _ = at.set(&mut self.store, wasmtime::Val::I32(-1));
        let _ = len.set(&mut self.store, wasmtime::Val::I32(0));
        let text = usize::try_from(start).ok().zip(usize::try_from(bytes).ok()).and_then(|(start, len)| {
            let end = start.checked_add(len.min(PANIC_BYTES_MAX))?;
            self.memory.data(&self.store).get(start..end)
        });
        Some(text.map_or_else(
            || "message unavailable".to_owned(),
            |text| String::from_utf8_lossy(text).into_owned(),
        ))
    }
}

/// Turns an error of wasmtime into a fault; a panic's text is not in it yet.
fn fault_of(
    error: &wasmtime::Error,
    transition: Transition,
    effect: Option<TrapEffect>,
    limits: &RunLimits,
) -> GuestFault {
    match error.downcast_ref::<wasmtime::Trap>() {
        Some(wasmtime::Trap::OutOfFuel) => GuestFault::OutOfFuel { max: limits.step_fuel_max },
        Some(wasmtime::Trap::Interrupt) => GuestFault::StepTooLong { max_ms: limits.step_wall_ms_max },
        Some(trap) => {
            let backtrace = error.downcast_ref::<wasmtime::WasmBacktrace>();
            let frame = backtrace.and_then(|backtrace| backtrace.frames().first());
            GuestFault::Trap(Box::new(TrapReport {
                message: trap.to_string(),
                panic: None,
                function_index: frame.map(wasmtime::FrameInfo::func_index),
                module_offset: frame.and_then(wasmtime::FrameInfo::module_offset),
                effect,
                transition,
            }))
        }
        None => GuestFault::Refused(format!("{}: {}", transition.as_str(), error.root_cause())),
    }
}

/// Distinguishes a failure of the module's code from a module that was refused before any of it ran.
fn not_instantiated(error: &wasmtime::Error, limits: &RunLimits) -> InstantiateError {
    let code_ran = error.is::<wasmtime::Trap>() || error.is::<wasmtime::WasmBacktrace>();
    match code_ran {
        true => InstantiateError::Start(fault_of(error, Transition::Start, None, limits)),
        false => InstantiateError::Instantiate(format!("{error:#}")),
    }
}

fn arm(store: &mut Store<Growth>, limits: &RunLimits) {
    // Fails only if the engine counts no fuel, and `Compiler::new` switches that on.
    let _ = store.set_fuel(limits.step_fuel_max);
    store.set_epoch_deadline(epoch::epochs(limits.step_wall_ms_max));
}

/// A reference to an object of the module, alive within one step.
pub(crate) type StepRef = Option<Rooted<AnyRef>>;
