//! The encoding of spans: the message `ExportTraceServiceRequest` of OTLP 1.x in protobuf.
//!
//! Written by hand, because the message has a dozen fields that have not changed since OTLP became stable, and the
//! libraries for it would bring more than a dozen crates. The test of `crates/faces/cli/tests/tracing` reads it with
//! OpenTelemetry's own Python package.

use crate::context::TraceContext;
use crate::conventions::{SERVICE_NAME, SERVICE_VERSION};
use crate::span::{AttributeValue, Span};

/// Wire types of protobuf.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
/// `Status.StatusCode.ERROR`.
const STATUS_ERROR: u64 = 2;

/// Encodes spans of one service.
pub(crate) fn request(service: &str, spans: &[Span]) -> Vec<u8> {
    let mut out = Message::default();
    out.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            resource.attribute(1, SERVICE_NAME, &service.into());
            resource.attribute(1, SERVICE_VERSION, &env!("CARGO_PKG_VERSION").into());
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.bytes(1, env!("CARGO_PKG_NAME").as_bytes());
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                scope_spans.message(2, |out| out.span(span));
            }
        });
    });
    out.0
}

/// A protobuf message under way.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn span(&mut self, span: &Span) {
        self.bytes(1, &span.parent.trace_id);
        self.bytes(2, &span.id);
        self.bytes(4, &span.parent.span_id);
        self.bytes(5, span.name.as_bytes());
        self.number(6, span.kind as u64);
        self.fixed64(7, span.began_ns);
        self.fixed64(8, span.ended_ns);
        for (name, value) in &span.attributes {
            self.attribute(9, name, value);
        }
        for link in &span.links {
            self.message(13, |out| out.link(link));
        }
        if let Some(error) = &span.error {
            self.message(15, |status| {
                status.bytes(2, error.as_bytes());
                status.number(3, STATUS_ERROR);
            });
        }
    }

    fn link(&mut self, to: &TraceContext) {
        self.bytes(1, &to.trace_id);
        self.bytes(2, &to.span_id);
    }

    fn attribute(&mut self, field: u64, name: &str, value: &AttributeValue) {
        self.message(field, |pair| {
            pair.bytes(1, name.as_bytes());
            pair.message(2, |any| match value {
                AttributeValue::Text(text) => any.bytes(1, text.as_bytes()),
                AttributeValue::Number(number) => any.number(3, *number),
            });
        });
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.varint(field << 3 | FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_nested_messages_are_encoded_as_protobuf_says() {
        let mut out = Message::default();
        out.number(1, 150);
        out.message(3, |inner| inner.number(1, 150));
        out.bytes(2, b"testing");
        out.fixed64(4, 1);
        // The examples of protobuf's own description of its encoding.
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g'],
            &[0x21, 1, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(out.0, expected.concat());
    }
}
