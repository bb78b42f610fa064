//! Every bound of the wasm host, with its default and what happens when it is reached. The scheduler's own bounds are
//! in [`millrace_runs::RunsLimits`].

use crate::codec::Generation;

/// Bounds of one instance, which all its runs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceLimits {
    /// Bytes of each run's buffer: the longest request, reply, argument list and result. `None` is the generation's
    /// default, 4,096 (A) or 131,072 (B). A longer reply fails its run with `resume payload exceeds buffer size`.
    pub buffer_bytes: Option<u32>,
    /// Bytes of all linear memories, all tables and the heap of garbage-collected objects together. Growth beyond it
    /// fails inside the module: `memory.grow` and `table.grow` return -1, and an allocation traps. The heap of objects
    /// grows by doubling, and half of it is room for the copying collector.
    pub memory_bytes_max: usize,
    /// Elements of all tables together. `table.grow` beyond it returns -1.
    pub table_elements_max: usize,
    /// Wasm instructions, about, of the module's start function, and as many of `init_effects`. An instance that needs
    /// more is not made.
    pub step_fuel_max: u64,
    /// Real time of the module's start function, and as much of `init_effects`. An instance that needs more is not
    /// made.
    pub step_wall_ms_max: u64,
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
        let RunLimits { step_fuel_max, step_wall_ms_max, .. } = RunLimits::default();
        InstanceLimits {
            buffer_bytes: None,
            memory_bytes_max: 256 << 20,
            table_elements_max: 1 << 20,
            step_fuel_max,
            step_wall_ms_max,
        }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { step_fuel_max: 2_000_000_000, step_wall_ms_max: 10_000, wall_ms_max: None }
    }
}

impl InstanceLimits {
    /// The bounds of the code that runs while the instance is made.
    pub(crate) fn start(&self) -> RunLimits {
        let InstanceLimits { step_fuel_max, step_wall_ms_max, .. } = *self;
        RunLimits { step_fuel_max, step_wall_ms_max, wall_ms_max: None }
    }

    pub(crate) fn buffer_bytes(&self, generation: Generation) -> u32 {
        let default = match generation {
            Generation::A => 4_096,
            Generation::B => 131_072,
        };
        self.buffer_bytes.unwrap_or(default)
    }
}
