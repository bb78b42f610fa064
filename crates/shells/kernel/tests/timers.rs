//! Durable timers: many that are set at once.

use std::sync::Arc;

use millrace_kernel::{KernelHandle, KernelParts, KernelSettings, OsReceiver, OsSender};
use millrace_model::{BATCH_BYTES_MAX, Batch, Done, Durability, Outcome, Requester, Timestamp, keys};
use millrace_shell::{RowCommits, RowReply, RowWriteError, RowWriter};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// A writer that waits until it is told to go on. The row writer in front of it refuses batches that are too large.
struct SlowCommits(watch::Receiver<bool>);

impl RowCommits for SlowCommits {
    fn submit(&self, batch: Batch, reply: RowReply) -> Result<(), RowWriteError> {
        let mut waits = self.0.clone();
        assert!(batch.bytes() <= BATCH_BYTES_MAX);
        tokio::spawn(async move {
            waits.wait_for(|go| *go).await.expect("the test goes on");
            reply.committed(&Outcome::Done(Done::default()));
        });
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp(1)
    }
}

fn slow_rows() -> (RowWriter, watch::Sender<bool>) {
    let (go, waits) = watch::channel(false);
    (RowWriter::new(Arc::new(SlowCommits(waits)), keys::ROUTER, Durability::Fsync, 1 << 20), go)
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
    let (rows, go) = slow_rows();
    let parts = KernelParts {
        settings: KernelSettings::default(),
        nonce: 7,
        clock: millrace_broker::SystemClock::start(millrace_model::CLOCK_SETTLE_MS),
        runtime: Handle::current(),
        rows: Some(rows),
        timers: Vec::new(),
        bus_feed: None,
        check_token: None,
        check_sender: None,
        audit_hook: None,
        records: None,
    };
    let (handle, _) = KernelHandle::start(parts, Vec::new()).await.expect("the loop starts");
    let (sender, mut receiver) = handle.open(Requester::Trusted).await.expect("the loop runs");
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
