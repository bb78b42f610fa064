//! Capabilities that come with the loop.

mod bus;
mod faults;
mod feed;
mod feeds;
mod memory;
mod memory_values;

pub use bus::bus;
pub(crate) use bus::{namespace_of, place_of};
pub(crate) use faults::of_data;
pub(crate) use feed::BUS_MESSAGE;
pub use feeds::{FeedLimits, Feeds};
pub use memory::memory;
pub use memory_values::{MemoryLimits, ValueCache};
