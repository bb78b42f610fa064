//! The process that a script calls: grants, small limits, and where things lie in the guest's memory.

use std::path::Path;
use std::sync::Arc;

use millrace_zabi::{
    FileRoot, Grants, HandleLimits, Limits, LocalBus, LoopLimits, Process, ProcessOptions, VecMemory,
};

/// A script's own bytes lie below this address; [`super::Call::Put`] reaches no further.
pub(super) const REQUEST: u64 = 1 << 16;
pub(super) const OPEN_REQUEST: u64 = REQUEST + 1024;
pub(super) const STRINGS: u64 = OPEN_REQUEST + 1024;
pub(super) const RESPONSE: u64 = STRINGS + 1024;
const HEAP: u64 = 160 << 10;
pub(super) const MEMORY_BYTES: usize = 192 << 10;
const MEMORY_BYTES_MAX: usize = 256 << 10;

pub(super) const ALLOCATIONS_MAX: usize = 8;

/// The capabilities that a script may name, granted or not.
pub const CAPABILITIES: [(&str, &str, Kind); 10] = [
    ("sys", "loop", Kind::Loop),
    ("sys", "info", Kind::Info),
    ("event", "bus", Kind::Bus),
    ("async", "default", Kind::Async),
    ("file", "aio", Kind::Aio),
    ("proc", "argv", Kind::List),
    ("proc", "env", Kind::List),
    ("net", "tcp", Kind::Refused),
    ("net", "http", Kind::Refused),
    ("no", "such", Kind::Refused),
];

/// The sort of handle that a capability opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Loop,
    Info,
    Bus,
    Async,
    Aio,
    /// A byte stream that ends.
    List,
    /// No handle: the capability is not granted, or there is none with this name.
    Refused,
}

/// Returns a process that may use everything inside this program, and the files of `folder`.
pub(super) fn process(folder: &Path) -> Process {
    let grants = Grants::none().sys_loop().sys_info().async_default();
    let grants = grants.event_bus(Arc::new(LocalBus::new(6))).proc_argv(["guest", ""]).proc_env(["A=1"]);
    let grants = grants.file_aio(FileRoot::open(folder).expect("the folder is there"));
    let mut options = ProcessOptions::new("fuzz", grants);
    options.limits = limits();
    options.heap_base = Some(HEAP);
    Process::new(options)
}

pub(super) fn memory() -> VecMemory {
    VecMemory::growing(MEMORY_BYTES, MEMORY_BYTES_MAX)
}

/// Small limits, so that short scripts reach them.
fn limits() -> Limits {
    let number_max = millrace_reactor::HandleNumber::new(40).expect("40 is the number of a handle");
    Limits {
        handles: HandleLimits { handles_max: 12, number_max },
        loops_max: 3,
        sys_loop: LoopLimits {
            watches_max: 6,
            timers_max: 6,
            output_bytes_max: millrace_reactor::OUTPUT_BYTES_MIN,
            ..LoopLimits::default()
        },
        allocations_max: ALLOCATIONS_MAX,
        transfer_bytes_max: 66_000,
        telemetry_bytes_max: 100,
        open_field_bytes_max: 200,
        aio_jobs_max: 4,
        aio_files_max: 3,
        aio_data_bytes_max: 100_000,
        aio_output_bytes_max: 130_000,
        aio_path_bytes_max: 300,
        bus_subscriptions_max: 4,
        bus_output_bytes_max: 70_000,
        futures_max: 3,
        ..Limits::default()
    }
}
