//! The trace that an event belongs to: the W3C header `traceparent` (version, trace id, span id, flags).

use millrace_model::{Headers, TRACEPARENT, TraceId, may_be_traced};

/// Belongs to `traceparent`: what vendors note about a trace. Means nothing without it.
pub const TRACESTATE: &str = "tracestate";
/// The flag that says that somebody keeps this trace.
const SAMPLED: u8 = 1;
/// Where the span id and the flags stand in a `traceparent`.
const SPAN_ID: std::ops::Range<usize> = 36..52;
const FLAGS: std::ops::Range<usize> = 53..55;

/// A sampled trace, and the span in it that an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
}

impl TraceContext {
    /// Returns the context of a valid `traceparent` that is sampled; `None` for any other, about which nothing is
    /// reported.
    pub fn sampled(traceparent: &str) -> Option<TraceContext> {
        let trace = TraceId::parse(traceparent)?;
        let [flags] = bytes(traceparent.get(FLAGS)?)?;
        let context =
            TraceContext { trace_id: bytes(trace.as_str())?, span_id: bytes(traceparent.get(SPAN_ID)?)? };
        (flags & SAMPLED != 0).then_some(context)
    }

    /// Returns the context of a new span in this trace. The span's id is drawn at random.
    pub fn child(self) -> TraceContext {
        TraceContext { span_id: rand::random(), ..self }
    }

    /// Returns the header by which others continue this trace.
    pub fn traceparent(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("00-{}-{}-{SAMPLED:02x}", hex(&self.trace_id), hex(&self.span_id))
    }

    /// Returns the context in an event's headers. Most events have no headers, and of the others the text is searched
    /// before it is parsed.
    pub fn of(headers: Option<&Headers>) -> Option<TraceContext> {
        let headers = headers.filter(|_| may_be_traced(headers))?;
        TraceContext::sampled(&headers.get(TRACEPARENT)?)
    }
}

/// Reads lower-case hexadecimal digits, whose alphabet `TraceId::parse` has checked.
fn bytes<const LEN: usize>(hex: &str) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_sampled_traceparent_is_a_context() {
        let context = TraceContext::sampled(&format!("00-{TRACE}-b7ad6b7169203331-01")).unwrap();
        assert_eq!(context.trace_id[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!(context.span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert!(TraceContext::sampled(&format!("00-{TRACE}-b7ad6b7169203331-03")).is_some(), "other flags");
    }

    #[test]
    fn a_context_is_written_as_it_is_read() {
        let text = format!("00-{TRACE}-b7ad6b7169203331-01");
        let context = TraceContext::sampled(&text).unwrap();
        assert_eq!(context.traceparent(), text);
        let child = context.child();
        assert_eq!(child.trace_id, context.trace_id);
        assert_eq!(TraceContext::sampled(&child.traceparent()), Some(child));
    }

    #[test]
    fn nothing_else_is_a_context() {
        for text in [
            format!("00-{TRACE}-b7ad6b7169203331-00"),
            format!("00-{TRACE}-b7ad6b7169203331-02"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}-01"),
            String::new(),
            "é".repeat(40),
        ] {
            assert_eq!(TraceContext::sampled(&text), None, "{text}");
        }
    }

    #[test]
    fn a_context_is_found_among_headers() {
        let headers = |text: &str| Headers::from_stored(text.to_owned().into());
        let traced = headers(&format!("{{\"a\":\"b\",\"traceparent\":\"00-{TRACE}-b7ad6b7169203331-01\"}}"));
        assert!(TraceContext::of(Some(&traced)).is_some());
        assert_eq!(TraceContext::of(Some(&headers("{\"note\":\"traceparent\"}"))), None);
        assert_eq!(TraceContext::of(None), None);
    }
}
