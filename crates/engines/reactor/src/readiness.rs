//! Readiness bits, and the only place that decides how a watch sees hup and error.

use std::ops::{BitAnd, BitOr};

/// A set of readiness bits: the state of a handle, or the interest of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Readiness(u8);

/// The state of a descriptor in the terms that epoll and kqueue share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsReadiness {
    pub readable: bool,
    pub writable: bool,
    /// The peer sends nothing more: FIN on a socket, or the last writer of a pipe is gone.
    pub read_closed: bool,
    /// The peer reads nothing more.
    pub write_closed: bool,
    pub error: bool,
}

impl Readiness {
    pub const NONE: Readiness = Readiness(0);
    pub const READABLE: Readiness = Readiness(1);
    pub const WRITABLE: Readiness = Readiness(2);
    pub const HUP: Readiness = Readiness(4);
    pub const ERROR: Readiness = Readiness(8);
    pub const ALL: Readiness = Readiness(15);

    /// The four single bits, lowest first.
    pub const BITS: [Readiness; 4] =
        [Readiness::READABLE, Readiness::WRITABLE, Readiness::HUP, Readiness::ERROR];

    /// Returns the set with these bits; `None` if a bit is not defined. (The reference accepts unknown bits and never
    /// reports them.)
    pub fn from_bits(bits: u32) -> Option<Readiness> {
        u8::try_from(bits).ok().filter(|bits| *bits <= Readiness::ALL.0).map(Readiness)
    }

    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    pub fn is_empty(self) -> bool {
        self == Readiness::NONE
    }

    /// Whether every bit of `other` is in this set.
    pub fn contains(self, other: Readiness) -> bool {
        self & other == other
    }

    /// Returns the readiness reported to a watch with this interest for a handle in state `self`: always a subset of
    /// the interest.
    ///
    /// - Hup counts as readable: the next read returns 0. A guest that asked for readable alone would otherwise never
    ///   learn that its peer is gone.
    /// - Error counts as readable and writable: the next read or write returns the error.
    /// - A state that the watch did not ask for is not reported, and does not end a POLL.
    #[must_use]
    pub fn reported_to(self, interest: Readiness) -> Readiness {
        let mut state = self;
        if state.contains(Readiness::HUP) {
            state = state | Readiness::READABLE;
        }
        if state.contains(Readiness::ERROR) {
            state = state | Readiness::READABLE | Readiness::WRITABLE;
        }
        state & interest
    }
}

/// A peer that only closed its sending direction (FIN) makes a handle readable, but is not a hup: hup means that both
/// directions are closed. Linux reports it so by itself; kqueue reports the end of each direction separately.
impl From<OsReadiness> for Readiness {
    fn from(os: OsReadiness) -> Readiness {
        let bit = |is_set, bit| if is_set { bit } else { Readiness::NONE };
        bit(os.readable || os.read_closed, Readiness::READABLE)
            | bit(os.writable, Readiness::WRITABLE)
            | bit(os.read_closed && os.write_closed, Readiness::HUP)
            | bit(os.error, Readiness::ERROR)
    }
}

impl BitOr for Readiness {
    type Output = Readiness;
    fn bitor(self, other: Readiness) -> Readiness {
        Readiness(self.0 | other.0)
    }
}

impl BitAnd for Readiness {
    type Output = Readiness;
    fn bitand(self, other: Readiness) -> Readiness {
        Readiness(self.0 & other.0)
    }
}
