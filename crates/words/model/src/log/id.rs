//! Event ids: UUID v7 when Millrace makes them, any short printable text when a client brings one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

use crate::clocks::time::Timestamp;

const TEXT_BYTES_MAX: usize = 255;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EventId {
    /// A UUID, held as its 128 bits.
    Uuid(u128),
    /// Brought by a client: 1 to 255 bytes of printable ASCII that are not the canonical form of a UUID.
    Text(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("id has {0} bytes: 1 to 255 are allowed")]
    Length(usize),
    #[error("id contains {0:?}: only printable ASCII is allowed")]
    BadCharacter(char),
}

impl EventId {
    pub fn parse(text: &str) -> Result<EventId, IdError> {
        // Tried first, because most ids are UUIDs: the server itself creates those.
        if let Some(bits) = parse_uuid(text) {
            return Ok(EventId::Uuid(bits));
        }
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(IdError::Length(text.len()));
        }
        if let Some(found) = text.chars().find(|c| !matches!(c, ' '..='~')) {
            return Err(IdError::BadCharacter(found));
        }
        Ok(EventId::Text(text.into()))
    }

    /// Returns the id of the `ordinal`-th event of the batch with this `nonce`. A function of its arguments, so that a
    /// commit that is resolved again after a conflict, or replayed from a seed, mints the same ids.
    pub fn mint(ts: Timestamp, nonce: u64, ordinal: u32) -> EventId {
        let spread = mix(nonce ^ mix(u64::from(ordinal) + 1));
        let mut random = [0; 10];
        random[..2].copy_from_slice(&((nonce >> 52) as u16).to_be_bytes());
        random[2..].copy_from_slice(&(spread >> 2).to_be_bytes());
        // The crate puts version and variant over the bits that are zero here.
        EventId::Uuid(Builder::from_unix_timestamp_millis(ts.0, &random).into_uuid().as_u128())
    }
}

/// The finaliser of splitmix64: a bijection, so two ordinals of one nonce never collide before truncation.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Accepts only the canonical lower-case form: every other spelling stays text, so that an id comes back as it came.
fn parse_uuid(text: &str) -> Option<u128> {
    let may_be_canonical =
        text.len() == Hyphenated::LENGTH && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if !may_be_canonical {
        return None;
    }
    Uuid::try_parse(text).ok().map(|uuid| uuid.as_u128())
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventId::Uuid(bits) => {
                f.write_str(Uuid::from_u128(*bits).hyphenated().encode_lower(&mut Uuid::encode_buffer()))
            }
            EventId::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for EventId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        EventId::parse(&text)
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_id_is_a_version_7_uuid_of_its_time() {
        let text = EventId::mint(Timestamp(0x0191_2f3a_4b5c), 0xdead_beef_cafe_f00d, 3).to_string();
        assert_eq!(&text[..15], "01912f3a-4b5c-7");
        assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
        assert_eq!(text.len(), 36);
    }

    /// A commit that is resolved again must mint the ids of the first time, also by a later version.
    #[test]
    fn minted_ids_never_change() {
        let most = (Timestamp(u64::MAX), u64::MAX, u32::MAX);
        for ((ts, nonce, ordinal), id) in [
            ((Timestamp(0x0191_2f3a_4b5c), 0xdead_beef_cafe_f00d, 3), "01912f3a-4b5c-7dea-adf5-674991bd9694"),
            ((Timestamp(1_723_140_000_000), 42, 7), "01913325-c900-7000-a4bb-59164117ad84"),
            ((Timestamp(0), 0, 0), "00000000-0000-7000-9ead-038243cd8e9f"),
            (most, "ffffffff-ffff-7fff-a99c-02d3b48e9831"),
        ] {
            assert_eq!(EventId::mint(ts, nonce, ordinal).to_string(), id);
        }
    }

    #[test]
    fn only_the_canonical_form_is_a_uuid() {
        let bits = 0x0191_2f3a_4b5c_7dea_9bee_fcaf_ef00_d123;
        assert_eq!(EventId::parse("01912f3a-4b5c-7dea-9bee-fcafef00d123"), Ok(EventId::Uuid(bits)));
        // A UUID of any version and variant.
        assert_eq!(EventId::parse("00000000-0000-0000-0000-000000000000"), Ok(EventId::Uuid(0)));
        assert_eq!(EventId::parse("ffffffff-ffff-ffff-ffff-ffffffffffff"), Ok(EventId::Uuid(u128::MAX)));
        for text in [
            "01912F3A-4B5C-7DEA-9BEE-FCAFEF00D123",
            "01912f3a-4b5c-7dea-9bee-fcafef00d12E",
            "01912f3a4b5c7dea9beefcafef00d123",
            "{01912f3a-4b5c-7dea-9bee-fcafef00d123}",
            "urn:uuid:01912f3a-4b5c-7dea-9bee-fcafef00d123",
            "01912f3a-4b5c-7dea-9bee-fcafef00d12g",
            "01912f3a-4b5c-7dea-9beef-cafef00d123",
            "01912f3a04b5c-7dea-9bee-fcafef00d123",
            "0191-2f3a-4b5c-7dea-9bee-fcafef00d12",
        ] {
            assert_eq!(EventId::parse(text), Ok(EventId::Text(text.into())));
        }
    }

    #[test]
    fn ids_of_one_batch_differ() {
        let ids: std::collections::BTreeSet<_> =
            (0..10_000).map(|n| EventId::mint(Timestamp(1), 42, n)).collect();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn ids_come_back_as_they_came() {
        for text in [
            "01912f3a-4b5c-7dea-9bee-fcafef00d123",
            "01912F3A-4B5C-7DEA-9BEE-FCAFEF00D123",
            "order 7",
            "\"\\",
        ] {
            assert_eq!(EventId::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_ids_say_why() {
        assert_eq!(EventId::parse("").unwrap_err().to_string(), "id has 0 bytes: 1 to 255 are allowed");
        assert_eq!(EventId::parse(&"x".repeat(256)).unwrap_err(), IdError::Length(256));
        assert_eq!(EventId::parse("a\n").unwrap_err(), IdError::BadCharacter('\n'));
        assert_eq!(EventId::parse("é").unwrap_err(), IdError::BadCharacter('é'));
    }
}
