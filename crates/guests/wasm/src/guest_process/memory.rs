//! The linear memory of a guest as `millrace-zabi` sees it.

use millrace_zabi::{GuestMemory, OutOfBounds};

/// The bytes of a linear memory during one call.
pub(super) struct LinearMemory<'a> {
    pub(super) bytes: &'a mut [u8],
    /// The size that the allocator asked for and did not get: a memory cannot grow while its bytes are borrowed, so
    /// `zi_alloc` grows it and tries again.
    pub(super) wanted: Option<u64>,
}

impl LinearMemory<'_> {
    fn range(&self, address: u64, length: u32) -> Result<std::ops::Range<usize>, OutOfBounds> {
        if length == 0 {
            return Ok(0..0);
        }
        let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
        let end = start.checked_add(length as usize).ok_or(OutOfBounds)?;
        Ok(start..end)
    }
}

impl GuestMemory for LinearMemory<'_> {
    fn bytes(&self, address: u64, length: u32) -> Result<&[u8], OutOfBounds> {
        self.bytes.get(self.range(address, length)?).ok_or(OutOfBounds)
    }

    fn bytes_mut(&mut self, address: u64, length: u32) -> Result<&mut [u8], OutOfBounds> {
        let range = self.range(address, length)?;
        self.bytes.get_mut(range).ok_or(OutOfBounds)
    }

    fn grow_to(&mut self, bytes: u64) -> bool {
        let has_room = bytes <= self.bytes.len() as u64;
        if !has_room {
            self.wanted = Some(bytes);
        }
        has_room
    }
}
