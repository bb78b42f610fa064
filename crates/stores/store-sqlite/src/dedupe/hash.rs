//! SipHash-1-3, implemented here because its results are stored: the standard library does not promise to keep its own.

/// The key of a store's hashes, drawn when the store is made, so that no client can bring ids that collide on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashKey(pub(crate) [u8; 16]);

impl HashKey {
    /// Draws a random key: the standard library seeds its hasher from the operating system.
    pub(crate) fn draw() -> HashKey {
        use std::hash::{BuildHasher, RandomState};
        let (low, high) = (RandomState::new().hash_one(0), RandomState::new().hash_one(1));
        HashKey((u128::from(low) | u128::from(high) << 64).to_le_bytes())
    }

    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        let key = u128::from_le_bytes(self.0);
        let (k0, k1) = (key as u64, (key >> 64) as u64);
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            absorb(&mut v, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        absorb(&mut v, u64::from_le_bytes(last) | (bytes.len() as u64) << 56);
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    #[test]
    fn it_is_siphash_1_3() {
        let bytes: Vec<u8> = (0..100).collect();
        for len in 0..bytes.len() {
            let mut standard = DefaultHasher::new();
            standard.write(&bytes[..len]);
            assert_eq!(HashKey([0; 16]).hash(&bytes[..len]), standard.finish(), "{len} bytes");
        }
        assert_eq!(
            HashKey([7; 16]).hash(b"order 7"),
            12_110_609_597_955_399_978,
            "stored hashes depend on it"
        );
    }

    #[test]
    fn keys_differ() {
        assert_ne!(HashKey::draw(), HashKey::draw());
    }
}
