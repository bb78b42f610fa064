//! The trace of an event, as in W3C Trace Context. The header is kept as its author wrote it and is parsed only for
//! logs.

use std::fmt;

use crate::log::event::Headers;

/// The header that carries the trace, in events and in HTTP requests.
pub const TRACEPARENT: &str = "traceparent";

const TRACE_HEX: usize = 32;
const PARENT_HEX: usize = 16;
const FLAGS_HEX: usize = 2;
/// Version, trace id, parent id, flags, and the dashes between them.
const LEN: usize = 2 + 1 + TRACE_HEX + 1 + PARENT_HEX + 1 + FLAGS_HEX;

/// 32 lower-case hexadecimal digits, not all zero.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceId(Box<str>);

impl TraceId {
    /// Returns the trace id of a `traceparent`; `None` if the text is not a valid one, and then it is an ordinary
    /// header.
    pub fn parse(traceparent: &str) -> Option<TraceId> {
        let (head, rest) = traceparent.split_at_checked(LEN)?;
        let mut parts = head.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let fits = |text: &str, len| text.len() == len && text.bytes().all(is_lower_hex);
        let nonzero = |text: &str| text.bytes().any(|byte| byte != b'0');
        let fine = fits(version, 2)
            && version != "ff"
            && fits(trace, TRACE_HEX)
            && nonzero(trace)
            && fits(parent, PARENT_HEX)
            && nonzero(parent)
            && fits(flags, FLAGS_HEX);
        // Only later versions of the format may have more fields, after a dash.
        let ends = rest.is_empty() || (version != "00" && rest.starts_with('-'));
        (fine && ends).then(|| TraceId(trace.into()))
    }

    /// Returns the trace id in an event's headers. Most events have none, so the text is searched before it is parsed.
    pub fn of(headers: Option<&Headers>) -> Option<TraceId> {
        let headers = headers.filter(|_| may_be_traced(headers))?;
        TraceId::parse(&headers.get(TRACEPARENT)?)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether headers may hold a trace. Cheap, and wrong only for headers that mention the name elsewhere.
pub fn may_be_traced(headers: Option<&Headers>) -> bool {
    headers.is_some_and(|headers| headers.json().as_str().contains(TRACEPARENT))
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_legal_traceparent_has_a_trace_id() {
        for text in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-will-be",
        ] {
            assert_eq!(TraceId::parse(text).expect(text).as_str(), TRACE);
        }
    }

    #[test]
    fn anything_else_has_none() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
            "é0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0é",
        ] {
            assert_eq!(TraceId::parse(text), None, "{text}");
        }
    }
}
