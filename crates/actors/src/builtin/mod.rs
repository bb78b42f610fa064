//! Capabilities that come with the loop.

mod faults;
mod memory;
mod shelf;

pub use memory::memory;
pub use shelf::{MemoryLimits, Shelf};
