//! The guest's memory as the host sees it: bytes by address, with bounds.

use millrace_reactor::ZabiError;
use thiserror::Error;

/// A range that is not inside the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the range is outside the guest's memory")]
pub struct OutOfBounds;

impl From<OutOfBounds> for ZabiError {
    fn from(OutOfBounds: OutOfBounds) -> ZabiError {
        ZabiError::Bounds
    }
}

/// The memory that a binding provides: linear memory of a wasm instance, or the addresses of a native guest. For a
/// native guest, address 0 with a length is out of bounds.
///
/// A range with a length of 0 is inside any memory; its slice is empty.
pub trait GuestMemory {
    /// Returns the bytes of a range.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    fn bytes(&self, address: u64, length: u32) -> Result<&[u8], OutOfBounds>;

    /// Returns the bytes of a range for writing.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    fn bytes_mut(&mut self, address: u64, length: u32) -> Result<&mut [u8], OutOfBounds>;

    /// Makes addresses up to `bytes` usable, for the allocator. Returns whether they are; a memory that cannot grow
    /// returns whether it is large enough.
    fn grow_to(&mut self, bytes: u64) -> bool;
}

/// A memory in a `Vec`: for tests, and for guests that are simulated.
#[derive(Clone, Debug)]
pub struct VecMemory {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl VecMemory {
    /// A memory of `bytes` zero bytes that does not grow.
    pub fn new(bytes: usize) -> VecMemory {
        VecMemory::growing(bytes, bytes)
    }

    /// A memory that the allocator may grow to `bytes_max`.
    pub fn growing(bytes: usize, bytes_max: usize) -> VecMemory {
        VecMemory { bytes: vec![0; bytes], bytes_max }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Returns the range as indexes, if it lies below `size`.
fn range(address: u64, length: u32, size: usize) -> Result<std::ops::Range<usize>, OutOfBounds> {
    if length == 0 {
        return Ok(0..0);
    }
    let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
    let end = start.checked_add(length as usize).filter(|end| *end <= size).ok_or(OutOfBounds)?;
    Ok(start..end)
}

impl GuestMemory for VecMemory {
    fn bytes(&self, address: u64, length: u32) -> Result<&[u8], OutOfBounds> {
        self.bytes.get(range(address, length, self.bytes.len())?).ok_or(OutOfBounds)
    }

    fn bytes_mut(&mut self, address: u64, length: u32) -> Result<&mut [u8], OutOfBounds> {
        let range = range(address, length, self.bytes.len())?;
        self.bytes.get_mut(range).ok_or(OutOfBounds)
    }

    fn grow_to(&mut self, bytes: u64) -> bool {
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= self.bytes.len() => true,
            Ok(bytes) if bytes <= self.bytes_max => {
                self.bytes.resize(bytes, 0);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_with_the_memory() {
        let mut memory = VecMemory::new(16);
        assert_eq!(memory.bytes(0, 16).map(<[u8]>::len), Ok(16));
        assert_eq!(memory.bytes(16, 0).map(<[u8]>::len), Ok(0));
        assert_eq!(memory.bytes(u64::MAX, 0).map(<[u8]>::len), Ok(0));
        for (address, length) in [(0, 17), (16, 1), (u64::MAX, 1), (u64::MAX - 3, u32::MAX), (1, u32::MAX)] {
            assert_eq!(memory.bytes(address, length), Err(OutOfBounds));
            assert_eq!(memory.bytes_mut(address, length), Err(OutOfBounds));
        }
    }
}
