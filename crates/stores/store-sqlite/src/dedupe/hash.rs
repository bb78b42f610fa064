//! SipHash-1-3 of a crate that names it, because its results are stored: the standard library does not promise to keep
//! its own.

use millrace_model::{EventId, TopicKey};
use siphasher::sip::SipHasher13;

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
        SipHasher13::new_with_key(&self.0).hash(bytes)
    }

    /// Returns the hash of an id that a client brought for an event of the topic.
    pub(crate) fn of_id(self, topic: &TopicKey, id: &EventId) -> u64 {
        let mut input = Vec::with_capacity(topic.as_str().len() + 40);
        // No topic contains a byte above 0x7f, so the end of the topic is unambiguous.
        input.extend_from_slice(topic.as_str().as_bytes());
        match id {
            EventId::Text(text) => {
                input.push(0x81);
                input.extend_from_slice(text.as_bytes());
            }
            EventId::Uuid(bits) => {
                input.push(0x82);
                input.extend_from_slice(&bits.to_be_bytes());
            }
        }
        self.hash(&input)
    }
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

    /// Stores contain hashes: no version may compute others.
    #[test]
    fn hashes_never_change() {
        let key = HashKey(std::array::from_fn(|at| at as u8));
        let bytes: Vec<u8> = (0..64).collect();
        for (len, hash) in [
            (0, 0xabac_0158_050f_c4dc),
            (1, 0xc9f4_9bf3_7d57_ca93),
            (7, 0xd392_7d98_9bb1_1140),
            (8, 0x3690_9511_8d29_9a8e),
            (9, 0x25a4_8eb3_6c06_3de4),
            (15, 0xd320_d86d_2a51_9956),
            (16, 0xcc4f_dd1a_7d90_8b66),
            (35, 0xcea1_a3be_bf18_6b91),
            (63, 0x9d19_9062_b7bb_b3a8),
        ] {
            assert_eq!(key.hash(&bytes[..len]), hash, "{len} bytes");
        }
    }

    #[test]
    fn keys_differ() {
        assert_ne!(HashKey::draw(), HashKey::draw());
    }
}
