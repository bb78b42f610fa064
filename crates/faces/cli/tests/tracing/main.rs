//! Traces as a collector receives them: the real binary exports, OpenTelemetry's own definitions read.

// Every module uses only some functions of the harness.
#![allow(dead_code, unreachable_pub)]

mod collector;
#[path = "../bus/server.rs"]
mod server;
#[path = "../bus/socket.rs"]
mod socket;

use std::net::TcpListener;
use std::path::Path;

use millrace::telemetry::{Exporter, SendBatch, SendError};
use millrace::{Config, Event, Handler, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::collector::Collector;
use crate::server::{Server, eventually};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const AUTHOR: &str = "b7ad6b7169203331";
const SECOND: &str = "c8be7c827a314442";

fn traceparent(span: &str, flags: &str) -> String {
    format!("00-{TRACE}-{span}-{flags}")
}

fn publish(server: &Server, traceparent: &str) {
    let headers = json!({"traceparent": traceparent});
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH", "topic": "orders", "payload": 1, "headers": headers, "rid": 7}));
    socket.expect("PUBLISHED");
}

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct OrderBilled {
    order: u64,
}

/// An exporter of this process, with the HTTP client that a program would bring.
fn exporter(collector: &Collector) -> Exporter {
    let url = format!("{}/v1/traces", collector.endpoint());
    let send: SendBatch = Box::new(move |batch| {
        let request = ureq::post(&url).header("content-type", "application/x-protobuf");
        request.send(batch).map(drop).map_err(|error| SendError(error.to_string()))
    });
    Exporter::start("the-worker".to_owned(), send).expect("a thread")
}

/// A server that exports, with OpenTelemetry's own variables.
fn exporting_to(collector: &Collector) -> Server {
    let endpoint = collector.endpoint();
    Server::with_env(
        &["--max-attempts", "5", "--ack-timeout-ms", "60000"],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", Path::new(&endpoint)),
            ("OTEL_EXPORTER_OTLP_HEADERS", Path::new("x-api-key=hush")),
            ("OTEL_SERVICE_NAME", Path::new("the-mill")),
        ],
    )
}

#[track_caller]
fn assert_part_of_the_authors_span(span: &Value) {
    assert_eq!((span["trace"].as_str(), span["parent"].as_str()), (Some(TRACE), Some(AUTHOR)), "{span}");
    assert!(span["began"].as_u64() <= span["ended"].as_u64(), "{span}");
}

#[test]
fn a_publish_and_each_of_its_deliveries_are_spans_of_the_authors_trace() {
    let mut collector = Collector::start();
    let server = exporting_to(&collector);
    let mut socket = server.socket();
    socket.subscribe("orders", "billing", &json!({"ack_mode": "individual"}));
    publish(&server, &traceparent(AUTHOR, "01"));
    let offset = socket.message();
    socket.send_nack("orders", "billing", offset, &json!({"reason": "the ledger is locked"}));
    let again = socket.message();
    assert_eq!(again, offset);
    socket.ack("orders", "billing", offset);
    let published = collector.spans("publish orders", 1).remove(0);
    assert_part_of_the_authors_span(&published);
    let attributes = &published["attributes"];
    assert_eq!(published["kind"], "SPAN_KIND_SERVER");
    assert_eq!(published["status"], "STATUS_CODE_UNSET");
    assert_eq!(attributes["messaging.system"], "millrace");
    assert_eq!(attributes["messaging.operation.type"], "send");
    assert_eq!(attributes["messaging.destination.name"], "orders");
    assert_eq!(attributes["millrace.durability"], "fsync");
    assert_eq!(attributes["millrace.offset"], offset);
    assert_eq!(published["resource"]["service.name"], "the-mill");
    assert_eq!(published["key"], "hush");
    let deliveries = collector.spans("deliver orders", 2);
    for (span, (attempt, end)) in deliveries.iter().zip([(1, "refused"), (2, "acked")]) {
        assert_part_of_the_authors_span(span);
        assert_eq!(span["attributes"]["millrace.attempt"], attempt);
        assert_eq!(span["attributes"]["millrace.settled"], end);
        assert_eq!(span["attributes"]["messaging.consumer.group.name"], "billing");
        assert_eq!(span["attributes"]["messaging.message.id"], attributes["messaging.message.id"]);
    }
    assert_eq!(
        (&deliveries[0]["status"], &deliveries[0]["error"]),
        (&json!("STATUS_CODE_ERROR"), &json!("refused"))
    );
    let (_, page) = server.request("GET", "/metrics", None);
    assert!(page.contains("millrace_otlp_dropped_total 0\n"), "{page}");
}

#[test]
fn what_nobody_samples_is_not_reported() {
    let mut collector = Collector::start();
    let server = exporting_to(&collector);
    let mut socket = server.socket();
    socket.subscribe("orders", "billing", &json!({}));
    publish(&server, &traceparent(AUTHOR, "00"));
    publish(&server, "no context");
    server.socket().publish("orders", &json!("without headers"));
    for _ in 0..3 {
        let offset = socket.message();
        socket.ack("orders", "billing", offset);
    }
    // The traced one comes last, so the others would have been sent before it.
    publish(&server, &traceparent(AUTHOR, "01"));
    let offset = socket.message();
    socket.ack("orders", "billing", offset);
    collector.spans("deliver orders", 1);
    collector.spans("publish orders", 1);
    assert_eq!(collector.all().len(), 2);
}

#[test]
fn a_batch_is_one_span_with_links() {
    let mut collector = Collector::start();
    let server = exporting_to(&collector);
    let event = |span: &str| json!({"payload": 1, "headers": {"traceparent": traceparent(span, "01")}});
    let events = [event(AUTHOR), event(SECOND), json!({"payload": 2})];
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": "orders", "events": events, "rid": 1}));
    socket.expect("PUBLISHED");
    let span = collector.spans("publish orders", 1).remove(0);
    assert_part_of_the_authors_span(&span);
    assert_eq!(span["links"], json!([SECOND]));
    assert_eq!(span["attributes"]["messaging.batch.message_count"], 3);
}

#[test]
fn a_trace_goes_on_after_the_server_was_killed() {
    let mut collector = Collector::start();
    let mut server = exporting_to(&collector);
    let mut socket = server.socket();
    socket.subscribe("orders", "billing", &json!({}));
    publish(&server, &traceparent(AUTHOR, "01"));
    socket.message();
    collector.spans("publish orders", 1);
    server.kill_and_restart();
    let mut socket = server.socket();
    socket.subscribe("orders", "billing", &json!({}));
    let offset = socket.message();
    socket.ack("orders", "billing", offset);
    let delivery = collector.spans("deliver orders", 1).remove(0);
    assert_part_of_the_authors_span(&delivery);
    assert_eq!(
        delivery["attributes"]["millrace.settled"], "acked",
        "the delivery that was cut short never ended"
    );
}

#[test]
fn a_chain_of_handlers_is_one_tree_over_two_processes_and_a_kill() {
    let mut collector = Collector::start();
    let mut server = exporting_to(&collector);
    let headers = json!({"traceparent": traceparent(AUTHOR, "01"), "tracestate": "vendor=1"});
    let (status, answer) =
        server.post("/topics/order.placed/events", &json!({"payload": {"order": 7}, "headers": headers}));
    assert_eq!(status, 200, "{answer}");
    collector.spans("publish order.placed", 1);
    server.kill_and_restart();
    let mut socket = server.socket();
    socket.subscribe("order.billed", "audit", &json!({}));
    let exporter = exporter(&collector);
    let config = Config { event_max_attempts: 1, ..Config::default() };
    let session = Session::builder(&server.store_url()).config(config);
    let session = session.tracer(exporter.tracer().expect("a tracer")).open().expect("a session");
    let bill = Handler::from_fn::<OrderPlaced>("shop:bill", |ctx| {
        let order = ctx.event.order;
        ctx.emit(OrderBilled { order })?;
        Ok(())
    });
    let file = Handler::from_fn::<OrderBilled>("shop:file", |_| Err("no shelf".into()));
    session.run_until_idle(vec![bill, file], vec![]).expect("a run");
    let message = socket.expect("MESSAGE");
    socket.ack("order.billed", "audit", message["offset"].as_u64().expect("an offset"));
    let processed = collector.spans("process order.placed", 1).remove(0);
    assert_part_of_the_authors_span(&processed);
    assert_eq!((&processed["kind"], &processed["links"]), (&json!("SPAN_KIND_CONSUMER"), &json!([AUTHOR])));
    assert_eq!(processed["resource"]["service.name"], "the-worker");
    assert_eq!(processed["attributes"]["millrace.handler"], "shop:bill");
    let own = processed["id"].as_str().expect("an id");
    assert_eq!(message["envelope"]["headers"]["traceparent"], traceparent(own, "01"));
    assert_eq!(message["envelope"]["headers"]["tracestate"], "vendor=1");
    let filed = collector.spans("process order.billed", 1).remove(0);
    let delivered = collector.spans("deliver order.billed", 1).remove(0);
    for span in [&filed, &delivered] {
        assert_eq!((&span["trace"], &span["parent"]), (&json!(TRACE), &json!(own)), "{span}");
    }
    assert_eq!((&filed["error"], &filed["attributes"]["error.type"]), (&json!("no shelf"), &json!("failed")));
    assert_eq!(delivered["resource"]["service.name"], "the-mill");
}

#[test]
fn a_collector_that_is_away_costs_nothing_but_a_counter() {
    // A port that nobody listens on.
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let endpoint = format!("http://{}", port.expect("an address"));
    let mut server = Server::with(&["--otlp-endpoint", &endpoint]);
    publish(&server, &traceparent(AUTHOR, "01"));
    eventually("the span is counted as lost", || {
        let (_, page) = server.request("GET", "/metrics", None);
        page.contains("millrace_otlp_dropped_total 1\n")
    });
    publish(&server, &traceparent(AUTHOR, "01"));
    assert_eq!(server.terminate(), Some(0));
}
