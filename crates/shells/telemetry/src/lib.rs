//! Traces for OpenTelemetry: spans, their encoding as OTLP protobuf, and the thread that sends them to a collector.
//!
//! - `context`: the trace that an event belongs to, read from its header `traceparent`.
//! - `span`: a span, with its beginning and end given by its maker.
//! - `conventions`: names of attributes.
//! - `otlp`: the encoding.
//! - `exporter`: the bounded queue and the thread.
//!
//! Nothing here waits for a collector, opens a socket or knows HTTP: how an encoded batch is sent is a function that the
//! program gives ([`Exporter::start`]). Nothing here decides what is traced, either: Millrace traces what its callers
//! have sampled (docs/decisions/0063).
//!
//! Start with [`Tracer`].

pub mod conventions;

mod context;
mod exporter;
mod otlp;
mod span;

pub use context::{TRACESTATE, TraceContext};
pub use exporter::{Exporter, SendBatch, SendError, Tracer, TracerView};
pub use span::{AttributeValue, Span, SpanKind, nanos, now_nanos};
