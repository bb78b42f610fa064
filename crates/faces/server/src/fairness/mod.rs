//! Fairness under load: how much of a scarce resource (connections, memory for bodies, pages and frames) a caller may
//! hold, and which connection is evicted when others need it.
//!
//! ```text
//! TCP accept -> Places: an HTTP connection, evictable while it waits for its peer   -> request
//! upgrade    -> Seats of the unauthenticated -> AUTH -> Seats of the authenticated  -> WebSocket
//! body, page -> Room: bytes, with a share per caller
//! half a frame -> Frames: bytes, the caller with most goes first
//! ```
//!
//! Everything is accounted to a caller ([`CallerKey`]), and only at admission: the path of a frame only counts its
//! bytes. An evicted peer is told so where the protocol allows it; [`Evictions`] counts evictions by reason and logs
//! them.

mod caller_key;
mod evictions;
mod frames;
mod place;
mod places;
mod room;
mod seats;

pub(crate) use caller_key::CallerKey;
pub(crate) use evictions::{EvictionReason, Evictions};
pub(crate) use frames::{FrameMeter, Frames};
pub(crate) use place::{BodyPace, ConnectionPlace, SentAway};
pub(crate) use places::{PlaceBounds, Places};
pub(crate) use room::{Room, RoomShare};
pub(crate) use seats::{Seat, SeatRule, Seats};

/// `percent` of `all`, at least 1.
pub(crate) fn share_of(all: usize, percent: usize) -> usize {
    (all as u128 * percent as u128 / 100).max(1) as usize
}
