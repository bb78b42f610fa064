//! The bounded queue of spans, and the thread that sends them.
//!
//! The caller that offers a span never waits. A span that finds the queue full is dropped and counted, and so are the spans of a
//! batch that the collector did not take: batches are not sent again, because a collector that is away for long would
//! only get them too late, and a collector that is overloaded would get even more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::otlp;
use crate::span::Span;

/// Spans that wait to be sent: about 8 MiB.
const QUEUE_SPANS_MAX: usize = 8192;
/// Spans of one request.
const BATCH_SPANS_MAX: usize = 512;
/// How long a span waits for others to share its request.
const LINGER: Duration = Duration::from_millis(500);
/// Warnings about a collector that takes nothing come at most this often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Sends one encoded request to the collector, and bounds the time that this may take.
pub type SendBatch = Box<dyn FnMut(Vec<u8>) -> Result<(), SendError> + Send>;

/// Why the collector did not take a batch, in words for the log.
#[derive(Debug)]
pub struct SendError(pub String);

/// Where spans are offered. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Tracer {
    queue: SyncSender<Span>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    exported: AtomicU64,
    dropped: AtomicU64,
    closing: AtomicBool,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracerView {
    pub exported: u64,
    pub dropped: u64,
}

impl Tracer {
    pub fn offer(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counters.dropped.fetch_add(1, Relaxed);
        }
    }

    pub fn view(&self) -> TracerView {
        TracerView {
            exported: self.counters.exported.load(Relaxed),
            dropped: self.counters.dropped.load(Relaxed),
        }
    }
}

/// The thread that sends. Dropping this value sends what waits, and waits for that until the first batch that the
/// collector does not take.
#[derive(Debug)]
pub struct Exporter {
    tracer: Option<Tracer>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts the thread. `service` names this program in the traces.
    pub fn start(service: String, send: SendBatch) -> std::io::Result<Exporter> {
        let (queue, spans) = sync_channel(QUEUE_SPANS_MAX);
        let counters = Arc::new(Counters::default());
        let mut sending = Sending { service, send, counters: counters.clone(), warned: None };
        let thread = std::thread::Builder::new()
            .name("millrace-otlp".to_owned())
            .spawn(move || sending.run(&spans))?;
        Ok(Exporter { tracer: Some(Tracer { queue, counters }), thread: Some(thread) })
    }

    /// Returns `None` only while this value is being dropped.
    pub fn tracer(&self) -> Option<Tracer> {
        self.tracer.clone()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Some(tracer) = self.tracer.take() {
            tracer.counters.closing.store(true, Relaxed);
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that sends traces fell over a bug");
        }
    }
}

struct Sending {
    service: String,
    send: SendBatch,
    counters: Arc<Counters>,
    warned: Option<Instant>,
}

impl Sending {
    fn run(&mut self, spans: &Receiver<Span>) {
        loop {
            let is_closing = self.counters.closing.load(Relaxed);
            let batch = gather(spans, is_closing);
            match batch {
                Gathered::Spans(batch) => {
                    let is_sent = self.send(&batch);
                    if is_closing && !is_sent {
                        return;
                    }
                }
                Gathered::Nothing if is_closing => return,
                Gathered::Nothing => {}
                Gathered::End => return,
            }
        }
    }

    /// Returns whether the collector took the batch.
    fn send(&mut self, batch: &[Span]) -> bool {
        let sent = (self.send)(otlp::request(&self.service, batch));
        let counter = if sent.is_ok() { &self.counters.exported } else { &self.counters.dropped };
        counter.fetch_add(batch.len() as u64, Relaxed);
        if let Err(SendError(error)) = &sent
            && self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY)
        {
            self.warned = Some(Instant::now());
            tracing::warn!(error, spans = batch.len(), "the collector did not take traces; they are dropped");
        }
        sent.is_ok()
    }
}

enum Gathered {
    Spans(Vec<Span>),
    Nothing,
    /// Nobody can offer spans any more, and none is left.
    End,
}

/// Waits for a span, then a little longer for more.
fn gather(spans: &Receiver<Span>, is_closing: bool) -> Gathered {
    let linger = if is_closing { Duration::ZERO } else { LINGER };
    let mut batch = match spans.recv_timeout(linger) {
        Ok(span) => vec![span],
        Err(RecvTimeoutError::Timeout) => return Gathered::Nothing,
        Err(RecvTimeoutError::Disconnected) => return Gathered::End,
    };
    let until = Instant::now() + linger;
    while batch.len() < BATCH_SPANS_MAX {
        match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(span) => batch.push(span),
            Err(_) => break,
        }
    }
    Gathered::Spans(batch)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::context::TraceContext;
    use crate::span::SpanKind;

    fn span(name: &str) -> Span {
        let parent = TraceContext { trace_id: [1; 16], span_id: [2; 8] };
        Span::new(parent, name.to_owned(), SpanKind::Server, (1, 2))
    }

    #[test]
    fn what_waits_at_the_end_is_sent() {
        let (sender, sent) = mpsc::channel();
        let send: SendBatch =
            Box::new(move |bytes| sender.send(bytes).map_err(|error| SendError(error.to_string())));
        let exporter = Exporter::start("mill".to_owned(), send).unwrap();
        let tracer = exporter.tracer().unwrap();
        (0..1000).for_each(|_| tracer.offer(span("publish orders")));
        drop(exporter);
        assert_eq!(tracer.view(), TracerView { exported: 1000, dropped: 0 });
        let bytes = sent.try_iter().next().unwrap();
        assert!(bytes.windows(14).any(|text| text == b"publish orders"));
    }

    #[test]
    fn a_collector_that_is_away_costs_a_counter() {
        let exporter =
            Exporter::start("mill".to_owned(), Box::new(|_| Err(SendError("refused".to_owned())))).unwrap();
        let tracer = exporter.tracer().unwrap();
        tracer.offer(span("publish orders"));
        drop(exporter);
        tracer.offer(span("publish orders"));
        assert_eq!(tracer.view(), TracerView { exported: 0, dropped: 2 });
    }

    #[test]
    fn a_queue_that_is_full_drops_and_does_not_wait() {
        let (go_on, wait) = mpsc::channel::<()>();
        let send: SendBatch = Box::new(move |_| wait.recv().map_err(|error| SendError(error.to_string())));
        let exporter = Exporter::start("mill".to_owned(), send).unwrap();
        let tracer = exporter.tracer().unwrap();
        let offered = QUEUE_SPANS_MAX + BATCH_SPANS_MAX + 1;
        (0..offered).for_each(|_| tracer.offer(span("publish orders")));
        assert!(tracer.view().dropped >= 1, "at most one batch has left the queue");
        drop(go_on);
        drop(exporter);
        let view = tracer.view();
        assert!(view.dropped > BATCH_SPANS_MAX as u64 && view.exported == 0, "{view:?}");
    }
}
