//! The request id: chosen by the client, returned byte for byte.

use serde_json::value::RawValue;

/// Most bytes of a request id between its quotes, or of a number's digits.
pub const RID_BYTES_MAX: usize = 255;

/// A JSON string or whole number, kept as its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rid(Box<str>);

impl Rid {
    pub fn number(number: u64) -> Rid {
        Rid(number.to_string().into())
    }

    /// Returns `None` for a value that is neither a string nor a whole number, or too long.
    pub(crate) fn from_raw(raw: &RawValue) -> Option<Rid> {
        let json = raw.get();
        let fits = match json.as_bytes().first() {
            Some(b'"') => json.len() <= RID_BYTES_MAX + 2,
            Some(b'-' | b'0'..=b'9') => {
                json.len() <= RID_BYTES_MAX && json.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
            }
            _ => false,
        };
        fits.then(|| Rid(json.into()))
    }

    /// Returns the id as a number, for a client that numbers its requests.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    pub fn as_json(&self) -> &str {
        &self.0
    }
}
