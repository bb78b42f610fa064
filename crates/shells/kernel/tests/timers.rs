//! Durable timers: many that are set at once.

use std::sync::Arc;

use futures_util::FutureExt;
use millrace_kernel::{Commit, KernelHandle, KernelParts, KernelSettings, OsReceiver, OsSender};
use millrace_model::{BATCH_BYTES_MAX, Op};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// A store that waits until it is told to go on, and refuses batches that are too large.
fn slow_store() -> (Commit, watch::Sender<bool>) {
    let (go, waits) = watch::channel(false);
    let commit: Commit = Arc::new(move |ops: Vec<Op>| {
        let mut waits = waits.clone();
        async move {
            waits.wait_for(|go| *go).await.map_err(|error| error.to_string())?;
            let bytes: usize = ops.iter().map(Op::bytes).sum();
            (bytes <= BATCH_BYTES_MAX).then_some(()).ok_or(format!("{bytes} bytes at once"))
        }
        .boxed()
    });
    (commit, go)
}

async fn send(sender: &OsSender, kind: &str, ty: &str, id: usize, data: &Value) {
    let line = json!({"kind": kind, "type": ty, "data": data,
        "metadata": {"id": id.to_string(), "timestamp": 1}});
    let message = millrace_wire::os::parse(line.to_string().as_bytes(), None).expect("a message");
    sender.send(message).await.expect("the loop runs");
}

async fn answer(receiver: &mut OsReceiver) -> Value {
    let line = receiver.next().await.expect("an answer");
    receiver.written(line.len());
    serde_json::from_str(&line).expect("JSON")
}

#[tokio::test]
async fn timers_that_wait_for_the_store_are_written_in_batches_that_fit() {
    const TIMERS: usize = 1000;
    let (commit, go) = slow_store();
    let parts = KernelParts {
        settings: KernelSettings::default(),
        nonce: 7,
        clock: millrace_broker::SystemClock::start(millrace_model::CLOCK_SETTLE_MS),
        runtime: Handle::current(),
        commit: Some(commit),
        timers: Vec::new(),
        bus_feed: None,
        check_token: None,
        check_sender: None,
        audit_hook: None,
        records: None,
    };
    let (handle, _) = KernelHandle::start(parts, Vec::new()).await.expect("the loop starts");
    let (sender, mut receiver) = handle.open(None).await.expect("the loop runs");
    // 15 KB each in the message, twice that in its row, where every quote and backslash is escaped once more.
    let event = json!({"kind": "event", "type": "A.B", "data": "\"".repeat(7_500)});
    for id in 0..TIMERS {
        send(&sender, "command", "Timer.Set", id, &json!({"delayMs": 600_000, "message": event})).await;
    }
    send(&sender, "query", "Syscall.Ping", TIMERS, &json!({"payload": 1})).await;
    assert_eq!(answer(&mut receiver).await["type"], "Syscall.Ping", "all of them have been routed");
    go.send(true).expect("the store waits");
    for _ in 0..TIMERS {
        let answer = answer(&mut receiver).await;
        assert_eq!(answer["kind"], "reply", "{answer}");
    }
}
