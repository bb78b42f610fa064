//! The calls of zABI 2.5 as imports of `env`: each takes wasm32 types and makes one call of [`millrace_zabi::Process`].
//!
//! Pointers travel as `i64` and hold an address of the linear memory. An address or a length that leaves the memory
//! makes the call return a negative error; no argument traps.

use millrace_zabi::{GuestMemory, Process};
use wasmtime::{Caller, Engine, Extern, Linker};

use super::memory::LinearMemory;
use super::state::{GuestState, Unwound};

pub(super) const IMPORT_MODULE: &str = "env";

/// Every call, in the order of the specification.
pub(super) const NAMES: [&str; 13] = [
    "zi_abi_version",
    "zi_ctl",
    "zi_read",
    "zi_write",
    "zi_end",
    "zi_alloc",
    "zi_free",
    "zi_telemetry",
    "zi_cap_count",
    "zi_cap_get_size",
    "zi_cap_get",
    "zi_cap_open",
    "zi_handle_hflags",
];

const PAGE_BYTES: u64 = 65_536;

type Guest<'a> = Caller<'a, GuestState>;

pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    streams(&mut linker)?;
    capabilities(&mut linker)?;
    linker.func_wrap(IMPORT_MODULE, "zi_abi_version", |mut guest: Guest<'_>| {
        call(&mut guest, |process, _| process.zi_abi_version().cast_signed())
    })?;
    linker.func_wrap(
        IMPORT_MODULE,
        "zi_ctl",
        |mut guest: Guest<'_>, request: i64, bytes: i32, reply: i64, room: i32| {
            call(&mut guest, |process, memory| {
                process.zi_ctl(memory, address(request), length(bytes), address(reply), length(room))
            })
        },
    )?;
    linker.func_wrap(IMPORT_MODULE, "zi_alloc", |mut guest: Guest<'_>, size: i32| {
        alloc(&mut guest, length(size))
    })?;
    linker.func_wrap(IMPORT_MODULE, "zi_free", |mut guest: Guest<'_>, block: i64| {
        call(&mut guest, |process, _| process.zi_free(address(block)))
    })?;
    linker.func_wrap(
        IMPORT_MODULE,
        "zi_telemetry",
        |mut guest: Guest<'_>, topic: i64, topic_bytes: i32, message: i64, message_bytes: i32| {
            call(&mut guest, |process, memory| {
                let (topic, message) = (address(topic), address(message));
                process.zi_telemetry(memory, topic, length(topic_bytes), message, length(message_bytes))
            })
        },
    )?;
    Ok(linker)
}

fn streams(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.func_wrap(IMPORT_MODULE, "zi_read", |mut guest: Guest<'_>, handle: i32, to: i64, room: i32| {
        call(&mut guest, |process, memory| process.zi_read(memory, handle, address(to), length(room)))
    })?;
    linker.func_wrap(
        IMPORT_MODULE,
        "zi_write",
        |mut guest: Guest<'_>, handle: i32, from: i64, bytes: i32| {
            call(&mut guest, |process, memory| process.zi_write(memory, handle, address(from), length(bytes)))
        },
    )?;
    linker.func_wrap(IMPORT_MODULE, "zi_end", |mut guest: Guest<'_>, handle: i32| {
        call(&mut guest, |process, _| process.zi_end(handle))
    })?;
    linker.func_wrap(IMPORT_MODULE, "zi_handle_hflags", |mut guest: Guest<'_>, handle: i32| {
        call(&mut guest, |process, _| process.zi_handle_hflags(handle).cast_signed())
    })?;
    Ok(())
}

fn capabilities(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.func_wrap(IMPORT_MODULE, "zi_cap_count", |mut guest: Guest<'_>| {
        call(&mut guest, |process, _| process.zi_cap_count())
    })?;
    linker.func_wrap(IMPORT_MODULE, "zi_cap_get_size", |mut guest: Guest<'_>, index: i32| {
        call(&mut guest, |process, _| process.zi_cap_get_size(index))
    })?;
    linker.func_wrap(
        IMPORT_MODULE,
        "zi_cap_get",
        |mut guest: Guest<'_>, index: i32, to: i64, room: i32| {
            call(&mut guest, |process, memory| process.zi_cap_get(memory, index, address(to), length(room)))
        },
    )?;
    linker.func_wrap(IMPORT_MODULE, "zi_cap_open", |mut guest: Guest<'_>, request: i64| {
        call(&mut guest, |process, memory| process.zi_cap_open(memory, address(request)))
    })?;
    Ok(())
}

fn address(pointer: i64) -> u64 {
    pointer.cast_unsigned()
}

fn length(bytes: i32) -> u32 {
    bytes.cast_unsigned()
}

/// Executes one call. A guest that was stopped meanwhile does not see the result: its code is unwound.
fn call<T>(
    guest: &mut Guest<'_>,
    execute: impl FnOnce(&mut Process, &mut dyn GuestMemory) -> T,
) -> wasmtime::Result<T> {
    with_memory(guest, |process, memory| execute(process, memory))
}

/// Allocates a block. Grows the memory and tries again if the allocator asks for more.
fn alloc(guest: &mut Guest<'_>, size: u32) -> wasmtime::Result<i64> {
    let attempt = |process: &mut Process, memory: &mut LinearMemory<'_>| {
        (process.zi_alloc(memory, size), memory.wanted, memory.bytes.len() as u64)
    };
    let (mut block, wanted, has) = with_memory(guest, attempt)?;
    if let (Some(bytes), Some(memory)) = (wanted, guest.data().memory)
        && memory.grow(&mut *guest, bytes.saturating_sub(has).div_ceil(PAGE_BYTES)).is_ok()
    {
        (block, ..) = with_memory(guest, attempt)?;
    }
    Ok(block.cast_signed())
}

fn with_memory<T>(
    guest: &mut Guest<'_>,
    execute: impl FnOnce(&mut Process, &mut LinearMemory<'_>) -> T,
) -> wasmtime::Result<T> {
    if guest.data().memory.is_none() {
        let memory = guest.get_export("memory").and_then(Extern::into_memory);
        guest.data_mut().memory = memory;
    }
    // A module without a memory is not loaded; the empty one keeps this free of a panic.
    let (bytes, state): (&mut [u8], _) = match guest.data().memory {
        Some(memory) => memory.data_and_store_mut(&mut *guest),
        None => (&mut [], guest.data_mut()),
    };
    state.calls = state.calls.wrapping_add(1);
    let result = execute(&mut state.process, &mut LinearMemory { bytes, wanted: None });
    match state.process.is_ended() {
        true => Err(Unwound::Stopped.into()),
        false => Ok(result),
    }
}
