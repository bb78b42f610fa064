//! The allocator behind `zi_alloc` and `zi_free`. Its bookkeeping is outside the guest's memory: a guest that
//! overwrites everything it owns cannot mislead the host.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::GuestMemory;

/// Alignment of every block, enough for any type of C.
const ALIGNMENT: u64 = 16;

#[derive(Debug)]
pub(crate) struct GuestHeap {
    /// The first address that was never part of a block.
    end: u64,
    used: BTreeMap<u64, u64>,
    /// Free blocks by address; neighbours are joined.
    free: BTreeMap<u64, u64>,
    /// The same free blocks by size, to find the smallest that fits.
    free_by_size: BTreeSet<(u64, u64)>,
    allocations_max: usize,
}

impl GuestHeap {
    /// `base` is the first free byte of the guest's memory (`__heap_base`). Address 0 is never returned.
    pub(crate) fn new(base: u64, allocations_max: usize) -> GuestHeap {
        GuestHeap {
            end: align(base.max(1)).unwrap_or(u64::MAX),
            used: BTreeMap::new(),
            free: BTreeMap::new(),
            free_by_size: BTreeSet::new(),
            allocations_max,
        }
    }

    /// Returns the address of a new block; `None` if the size is 0, there is no memory, or `allocations_max` blocks are
    /// in use.
    pub(crate) fn alloc(&mut self, size: u32, memory: &mut dyn GuestMemory) -> Option<u64> {
        if size == 0 || self.used.len() >= self.allocations_max {
            return None;
        }
        let bytes = align(u64::from(size))?;
        let address = match self.free_by_size.range((bytes, 0)..).next().copied() {
            Some((free_bytes, address)) => {
                self.remove_free(address, free_bytes);
                if free_bytes > bytes {
                    self.insert_free(address + bytes, free_bytes - bytes);
                }
                address
            }
            None => {
                let end = self.end.checked_add(bytes)?;
                if !memory.grow_to(end) {
                    return None;
                }
                std::mem::replace(&mut self.end, end)
            }
        };
        self.used.insert(address, bytes);
        Some(address)
    }

    /// Returns false if no block begins at this address.
    pub(crate) fn free(&mut self, address: u64) -> bool {
        let Some(mut bytes) = self.used.remove(&address) else { return false };
        let mut start = address;
        if let Some((&before, &before_bytes)) = self.free.range(..address).next_back()
            && before + before_bytes == address
        {
            self.remove_free(before, before_bytes);
            (start, bytes) = (before, bytes + before_bytes);
        }
        if let Some(&after_bytes) = self.free.get(&(start + bytes)) {
            self.remove_free(start + bytes, after_bytes);
            bytes += after_bytes;
        }
        if start + bytes == self.end {
            self.end = start;
        } else {
            self.insert_free(start, bytes);
        }
        true
    }

    fn insert_free(&mut self, address: u64, bytes: u64) {
        self.free.insert(address, bytes);
        self.free_by_size.insert((bytes, address));
    }

    fn remove_free(&mut self, address: u64, bytes: u64) {
        self.free.remove(&address);
        self.free_by_size.remove(&(bytes, address));
    }
}

fn align(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::VecMemory;

    #[test]
    fn blocks_are_aligned_apart_and_used_again() {
        let mut memory = VecMemory::growing(64, 1024);
        let mut heap = GuestHeap::new(9, 100);
        let first = heap.alloc(1, &mut memory).unwrap();
        let second = heap.alloc(17, &mut memory).unwrap();
        let third = heap.alloc(16, &mut memory).unwrap();
        assert_eq!([first, second, third], [16, 32, 64]);
        assert_eq!(memory.len(), 80);
        assert!(heap.free(second) && !heap.free(second) && !heap.free(33));
        assert_eq!(heap.alloc(32, &mut memory), Some(second));
        assert!(heap.free(first) && heap.free(third) && heap.free(second));
        assert_eq!((heap.end, heap.free.len()), (16, 0), "all blocks are joined");
    }

    #[test]
    fn a_full_memory_and_full_books_return_nothing() {
        let mut memory = VecMemory::new(64);
        let mut heap = GuestHeap::new(16, 2);
        assert_eq!(heap.alloc(0, &mut memory), None);
        assert_eq!(heap.alloc(49, &mut memory), None);
        assert_eq!(heap.alloc(u32::MAX, &mut memory), None);
        assert_eq!(heap.alloc(16, &mut memory), Some(16));
        assert_eq!(heap.alloc(16, &mut memory), Some(32));
        assert_eq!(heap.alloc(16, &mut memory), None, "the books hold two blocks");
        assert_eq!(GuestHeap::new(u64::MAX, 2).alloc(1, &mut memory), None);
    }
}
