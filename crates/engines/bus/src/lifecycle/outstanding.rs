//! The effects under way, by token.

use std::collections::BTreeMap;

use crate::interface::input::Token;
use crate::lifecycle::pending::Pending;

#[derive(Debug)]
pub(crate) struct Outstanding {
    by_token: BTreeMap<Token, Pending>,
    /// The last token that was given out; no token is used again.
    last: u64,
    seed: u64,
}

impl Outstanding {
    pub(crate) fn new(seed: u64) -> Outstanding {
        Outstanding { by_token: BTreeMap::new(), last: 0, seed }
    }

    pub(crate) fn next_token(&mut self) -> Token {
        self.last += 1;
        Token(self.last)
    }

    /// Returns a number that looks random from outside and is a function of seed and token, so that the simulator can
    /// repeat a run.
    pub(crate) fn nonce(&self, token: Token) -> u64 {
        let mut x = self.seed ^ token.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Begins an effect that needs no nonce. Returns its token.
    pub(crate) fn begin(&mut self, pending: Pending) -> Token {
        let token = self.next_token();
        self.insert(token, pending);
        token
    }

    pub(crate) fn insert(&mut self, token: Token, pending: Pending) {
        self.by_token.insert(token, pending);
    }

    /// Ends an effect. `None` if its entry is gone: the store failed meanwhile, and every entry was given up.
    pub(crate) fn end(&mut self, token: Token) -> Option<Pending> {
        self.by_token.remove(&token)
    }

    pub(crate) fn get(&self, token: Token) -> Option<&Pending> {
        self.by_token.get(&token)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.by_token.values()
    }

    /// Gives up every effect under way.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Pending> + use<> {
        std::mem::take(&mut self.by_token).into_values()
    }
}
