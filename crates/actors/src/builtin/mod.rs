//! Capabilities that come with the loop.

mod bus;
mod faults;
mod feed;
mod memory;
mod shelf;

pub use bus::{Feeds, bus};
pub(crate) use feed::BUS_MESSAGE;
pub use memory::memory;
pub use shelf::{MemoryLimits, Shelf};
