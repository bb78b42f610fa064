//! Permutes the order of simultaneous completions, by a seed that the shell provides.

/// A splitmix64 generator: the same seed gives the same permutations on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    state: u64,
}

impl Shuffle {
    pub(crate) fn new(seed: u64) -> Shuffle {
        Shuffle { state: seed }
    }

    /// The Fisher-Yates shuffle. The bias of the remainder is below 2^-32 for slices that fit into memory.
    pub(crate) fn permute<T>(&mut self, slice: &mut [T]) {
        for last in (1..slice.len()).rev() {
            let other = self.next() % (last as u64 + 1);
            slice.swap(last, other as usize);
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_keeps_every_item_and_follows_the_seed() {
        let permuted = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            Shuffle::new(seed).permute(&mut items);
            items
        };
        assert_eq!(permuted(7), permuted(7));
        assert_ne!(permuted(7), permuted(8));
        let mut sorted = permuted(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u32>>());
    }
}
