//! `event/bus`: publish and subscribe by topic. A port ([`BusPort`]) hides what carries the events; [`LocalBus`]
//! carries them between the guests of one program.

mod handle;
mod local;
mod messages;
mod port;

pub(crate) use handle::BusHandle;
pub use local::LocalBus;
pub use port::{BusError, BusEvent, BusPort, BusReceipt, BusSubscriber, Offered, SubscriptionId};

/// The bounds of one handle; see [`crate::Limits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusHandleLimits {
    pub(crate) subscriptions_max: usize,
    pub(crate) output_bytes_max: usize,
}
