//! The accounting of an instance's growth: all its memories, all its tables and its heap of objects together.
//!
//! wasmtime's own `StoreLimits` bounds each memory and each table by itself, and a module may declare a hundred
//! of either kind.

use wasmtime::ResourceLimiter;

/// wasmtime stores an element of a table as a pointer, whatever its type.
const ELEMENT_BYTES: usize = size_of::<usize>();

/// See the file's documentation. The counts never fall: wasm has no instruction that shrinks anything, and growth that
/// the system refuses after it was allowed here stays counted. `memory_grow_failed` cannot give it back: wasmtime also
/// calls it for growth that was never counted here, so a guest could lower its account at will.
#[derive(Debug)]
pub(crate) struct Growth {
    bytes: usize,
    bytes_max: usize,
    elements: usize,
    elements_max: usize,
}

impl Growth {
    pub(crate) fn new(bytes_max: usize, elements_max: usize) -> Growth {
        Growth { bytes: 0, bytes_max, elements: 0, elements_max }
    }

    /// Counts the bytes if they are within the limit. Returns whether they are.
    fn count_bytes(&mut self, more: usize) -> bool {
        let bytes = self.bytes.saturating_add(more);
        let is_within = bytes <= self.bytes_max;
        if is_within {
            self.bytes = bytes;
        }
        is_within
    }
}

impl ResourceLimiter for Growth {
    /// Called for linear memories and for the heap of objects alike.
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // wasmtime would refuse such growth after this call; refused here, it is not counted.
        let is_declared = maximum.is_none_or(|maximum| desired <= maximum);
        Ok(is_declared && self.count_bytes(desired.saturating_sub(current)))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let elements = self.elements.saturating_add(more);
        let is_declared = maximum.is_none_or(|maximum| desired <= maximum);
        let is_within = is_declared
            && elements <= self.elements_max
            && self.count_bytes(more.saturating_mul(ELEMENT_BYTES));
        if is_within {
            self.elements = elements;
        }
        Ok(is_within)
    }
}
