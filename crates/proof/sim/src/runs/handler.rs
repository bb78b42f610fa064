//! How a handler of the world of effect runs answers a call.

use crate::dice::Dice;

/// Position of the operation of kind `tail`; the other one is of kind `resume`.
pub(super) const TELL: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    AtOnce,
    /// Answers with a continuation of the wrong kind, an error, no handler at all, or an early end.
    Wrong,
    Late,
    Twice,
    /// The answer is given at once and takes effect later.
    Sleep,
    /// The handler waits for a timer, then answers.
    Wake,
    Silent,
}

impl Manner {
    pub(super) fn draw(dice: &mut Dice) -> Manner {
        match dice.below(100) {
            0..40 => Manner::AtOnce,
            40..44 => Manner::Wrong,
            44..65 => Manner::Late,
            65..72 => Manner::Twice,
            72..85 => Manner::Sleep,
            85..98 => Manner::Wake,
            _ => Manner::Silent,
        }
    }
}
