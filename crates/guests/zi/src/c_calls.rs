//! The functions that C programs call, and everything in this crate that touches raw memory: the ranges that a caller
//! names, and the blocks of `zi_alloc`. The only module of this crate that may contain `unsafe` code.
//!
//! Every function of this module has the contract of `include/zi.h`: a range (an address and a length) that a caller
//! passes is memory of the program, readable and, where the call writes, writable, and no other thread changes it while
//! the call runs. The library cannot check all of that. The checks it makes: a range with a length has an address other
//! than 0, and does not go past the end of the address space.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;

use millrace_zabi::{ABI_VERSION, GuestMemory, OutOfBounds};

use crate::{blocks, calls};

/// Alignment that is enough for any type of C.
const BLOCK_ALIGNMENT: usize = 16;

/// The memory of this program, for the length of one call from C.
#[derive(Debug)]
pub(crate) struct CallerMemory(());

impl CallerMemory {
    /// # Safety
    ///
    /// Until the value is dropped, the contract of this module must hold for every range that is asked for.
    unsafe fn new() -> CallerMemory {
        CallerMemory(())
    }
}

impl GuestMemory for CallerMemory {
    fn bytes(&self, address: u64, length: u32) -> Result<&[u8], OutOfBounds> {
        let Some((address, length)) = checked_range(address, length)? else { return Ok(&[]) };
        // SAFETY: the range is not null and does not wrap (`checked_range`). By the contract of `CallerMemory::new` its
        // memory is readable and nobody changes it during the call. The slice does not outlive `self`.
        Ok(unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(address), length) })
    }

    fn bytes_mut(&mut self, address: u64, length: u32) -> Result<&mut [u8], OutOfBounds> {
        let Some((address, length)) = checked_range(address, length)? else { return Ok(&mut []) };
        // SAFETY: as in `bytes`, and the range is writable. `&mut self` keeps other slices of this call away.
        Ok(unsafe { std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(address), length) })
    }

    /// Always false: the blocks of `zi_alloc` come from the program's own allocator (`blocks.rs`), not from here.
    fn grow_to(&mut self, _bytes: u64) -> bool {
        false
    }
}

/// Returns the range in the machine's own number type; `None` if it is empty.
fn checked_range(address: u64, length: u32) -> Result<Option<(usize, usize)>, OutOfBounds> {
    if length == 0 {
        return Ok(None);
    }
    let address = usize::try_from(address).map_err(|_| OutOfBounds)?;
    let length = usize::try_from(length).map_err(|_| OutOfBounds)?;
    let fits = address.checked_add(length).is_some() && isize::try_from(length).is_ok();
    if address == 0 || !fits { Err(OutOfBounds) } else { Ok(Some((address, length))) }
}

/// A block of `zi_alloc`. Its bytes belong to the C program until the block is dropped.
#[derive(Debug)]
pub(crate) struct Block {
    address: usize,
    layout: Layout,
}

impl Block {
    /// Returns a block of zero bytes; `None` if the size is 0, or there is no memory.
    pub(crate) fn new(bytes: u32) -> Option<Block> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        let layout = Layout::from_size_align(bytes, BLOCK_ALIGNMENT).ok()?;
        // SAFETY: the size of the layout is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        (!start.is_null()).then(|| Block { address: start.expose_provenance(), layout })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `new` allocated this address with this layout, and a block is dropped once.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(self.address), self.layout) }
    }
}

// The safety section of each function below is the contract of this module; `include/zi.h` states it for C programs.
// `#[unsafe(no_mangle)]`: the names begin with `zi_`, the name space of zABI; no other code defines them.

#[unsafe(no_mangle)]
extern "C" fn zi_abi_version() -> u32 {
    ABI_VERSION
}

#[unsafe(no_mangle)]
unsafe extern "C" fn zi_ctl(request: u64, request_bytes: u32, reply: u64, reply_bytes_max: u32) -> i32 {
    // SAFETY: the caller keeps the contract for `request` and `reply`.
    let mut memory = unsafe { CallerMemory::new() };
    calls::ctl(&mut memory, (request, request_bytes), (reply, reply_bytes_max))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn zi_read(handle: i32, to: u64, bytes_max: u32) -> i32 {
    // SAFETY: the caller keeps the contract for `to`.
    let mut memory = unsafe { CallerMemory::new() };
    calls::read(&mut memory, handle, to, bytes_max)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn zi_write(handle: i32, from: u64, bytes: u32) -> i32 {
    // SAFETY: the caller keeps the contract for `from`, and for the ranges that a request in it names.
    let mut memory = unsafe { CallerMemory::new() };
    calls::write(&mut memory, handle, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn zi_end(handle: i32) -> i32 {
    calls::end(handle)
}

#[unsafe(no_mangle)]
extern "C" fn zi_alloc(bytes: u32) -> u64 {
    blocks::alloc(bytes)
}

/// Accepts any number: an address that is not a block's is an error. So this function is safe, except that the C
/// program must not use the block afterwards.
#[unsafe(no_mangle)]
extern "C" fn zi_free(address: u64) -> i32 {
    blocks::free(address)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn zi_telemetry(topic: u64, topic_bytes: u32, message: u64, message_bytes: u32) -> i32 {
    // SAFETY: the caller keeps the contract for `topic` and `message`.
    let memory = unsafe { CallerMemory::new() };
    calls::telemetry(&memory, (topic, topic_bytes), (message, message_bytes))
}

#[unsafe(no_mangle)]
extern "C" fn zi_cap_count() -> i32 {
    calls::cap_count()
}

#[unsafe(no_mangle)]
extern "C" fn zi_cap_get_size(index: i32) -> i32 {
    calls::cap_get_size(index)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn zi_cap_get(index: i32, to: u64, bytes_max: u32) -> i32 {
    // SAFETY: the caller keeps the contract for `to`.
    let mut memory = unsafe { CallerMemory::new() };
    calls::cap_get(&mut memory, index, to, bytes_max)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn zi_cap_open(request: u64) -> i32 {
    // SAFETY: the caller keeps the contract for the 40 bytes at `request`, and for the ranges that they name.
    let mut memory = unsafe { CallerMemory::new() };
    calls::cap_open(&mut memory, request)
}

#[unsafe(no_mangle)]
extern "C" fn zi_handle_hflags(handle: i32) -> u32 {
    calls::handle_hflags(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_cannot_be_memory_are_refused() {
        assert_eq!(checked_range(0, 0), Ok(None));
        assert_eq!(checked_range(u64::MAX, 0), Ok(None));
        assert_eq!(checked_range(16, 4), Ok(Some((16, 4))));
        for (address, length) in [(0, 1), (0, u32::MAX), (u64::MAX, 1), (u64::MAX - 3, 5)] {
            assert_eq!(checked_range(address, length), Err(OutOfBounds), "{address} {length}");
        }
    }

    #[test]
    fn a_range_is_the_memory_at_its_address() {
        let mut there = *b"hello";
        let address = there.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the only range asked for is `there`, which nothing else uses meanwhile.
        let mut memory = unsafe { CallerMemory::new() };
        assert_eq!(memory.bytes(address, 5), Ok(&b"hello"[..]));
        memory.bytes_mut(address, 1).unwrap().copy_from_slice(b"j");
        assert_eq!(&there, b"jello");
    }
}
