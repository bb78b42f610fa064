//! Every bound of the wasm host, with its default and the answer when it is reached. The scheduler's own bounds are in
//! [`millrace_runs::RunsLimits`].

use crate::codec::Generation;

/// Bounds of one instance, which all its runs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceLimits {
    /// Bytes of each run's buffer: the longest request, reply, argument list and result. `None` is the generation's
    /// default, 4,096 (A) or 131,072 (B). A longer reply fails its run with `resume payload exceeds buffer size`.
    pub buffer_bytes: Option<u32>,
    /// Bytes of linear memory, and the same again for the heap of garbage-collected objects. Growth beyond it fails
    /// inside the module: `memory.grow` returns -1, and an allocation traps.
    pub memory_bytes_max: usize,
    /// Elements of each table. `table.grow` beyond it returns -1.
    pub table_elements_max: usize,
}

/// Bounds of one run. A run that exceeds one fails; other runs of the instance go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Wasm instructions, about, in one continuation step. Deterministic: the same program stops at the same place.
    pub step_fuel_max: u64,
    /// Real time of one continuation step. Stops steps whose instructions are few but long, such as filling memory.
    pub step_wall_ms_max: u64,
    /// Time from start to outcome, on the host's clock (virtual time under a virtual clock). `None` is no bound.
    pub wall_ms_max: Option<u64>,
}

impl Default for InstanceLimits {
    fn default() -> Self {
        InstanceLimits { buffer_bytes: None, memory_bytes_max: 256 << 20, table_elements_max: 1 << 20 }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { step_fuel_max: 2_000_000_000, step_wall_ms_max: 10_000, wall_ms_max: None }
    }
}

impl InstanceLimits {
    pub(crate) fn buffer_bytes(&self, generation: Generation) -> u32 {
        let default = match generation {
            Generation::A => 4_096,
            Generation::B => 131_072,
        };
        self.buffer_bytes.unwrap_or(default)
    }
}
