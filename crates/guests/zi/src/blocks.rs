//! The blocks that `zi_alloc` has allocated. The list makes `zi_free` of a wrong address an error instead of a crash.

use std::collections::BTreeMap;

use millrace_zabi::{Limits, ZabiError};
use parking_lot::Mutex;

use crate::c_calls::Block;

static BLOCKS: Mutex<BTreeMap<u64, Block>> = Mutex::new(BTreeMap::new());

/// Returns the address of a new block of zero bytes, aligned to 16; 0 if the size is 0, there is no memory, or
/// `Limits::allocations_max` blocks are in use.
pub(crate) fn alloc(bytes: u32) -> u64 {
    let blocks_max = Limits::default().allocations_max;
    let mut blocks = BLOCKS.lock();
    match Block::new(bytes).filter(|_| blocks.len() < blocks_max) {
        Some(block) => {
            let address = block.address();
            blocks.insert(address, block);
            address
        }
        None => 0,
    }
}

pub(crate) fn free(address: u64) -> i32 {
    let removed = BLOCKS.lock().remove(&address);
    if removed.is_some() { 0 } else { ZabiError::Invalid.code() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_freed_once() {
        let (first, second) = (alloc(1), alloc(1 << 20));
        assert!(first != 0 && second != 0 && first != second);
        assert_eq!((first % 16, second % 16), (0, 0));
        assert_eq!((free(first), free(first), free(second + 1), free(second)), (0, -1, -1, 0));
        assert_eq!((alloc(0), free(0)), (0, -1));
    }
}
