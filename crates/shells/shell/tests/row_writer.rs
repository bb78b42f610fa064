//! The row writer lets only its own rows through, in order, and bounds the bytes on their way to the disk.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::*;
use millrace_shell::{RowCommits, RowReply, RowWriteError, RowWriter};
use millrace_store::StoreError;
use parking_lot::Mutex;

/// Keeps what is submitted until the test settles it.
#[derive(Default)]
struct Held(Mutex<Vec<(Batch, RowReply)>>);

impl RowCommits for Held {
    fn submit(&self, batch: Batch, reply: RowReply) -> Result<(), RowWriteError> {
        self.0.lock().push((batch, reply));
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp(77)
    }
}

fn writer(bytes_max: usize) -> (Arc<Held>, RowWriter) {
    let held = Arc::new(Held::default());
    (held.clone(), RowWriter::new(held, "router/", Durability::Os, bytes_max))
}

fn put(key: &str, bytes: usize) -> Op {
    Op::Put { space: Space::Kv, key: key.to_owned(), value: Bytes::from(vec![b'x'; bytes]) }
}

fn delete(key: &str) -> Op {
    Op::Delete { space: Space::Kv, key: key.to_owned() }
}

#[tokio::test(flavor = "current_thread")]
async fn rows_are_answered_when_their_batch_is_settled_and_not_before() {
    let (held, rows) = writer(1 << 20);
    let first = rows.hand_over(vec![put("router/a", 1), delete("router/b")]).await.unwrap();
    let second = rows.hand_over(vec![put("router/a", 2)]).await.unwrap();
    let third = rows.hand_over(vec![put("router/a", 3)]).await.unwrap();
    let batches: Vec<(Batch, RowReply)> = std::mem::take(&mut *held.0.lock());
    let shapes: Vec<_> =
        batches.iter().map(|(batch, _)| (batch.ops.len(), batch.durability, batch.now)).collect();
    let settings = (Durability::Os, Timestamp(77));
    assert_eq!(shapes, [2, 1, 1].map(|ops| (ops, settings.0, settings.1)));
    let mut replies = batches.into_iter().map(|(_, reply)| reply);
    let first = tokio::spawn(first.durable());
    tokio::task::yield_now().await;
    assert!(!first.is_finished());
    replies.next().unwrap().committed(&Outcome::Done(Done::default()));
    assert_eq!(first.await.unwrap(), Ok(()));
    replies.next().unwrap().failed(&StoreError::Poisoned("broken".into()));
    let failed = second.durable().await.unwrap_err();
    assert!(matches!(&failed, RowWriteError::StorageFailed(why) if why.contains("broken")), "{failed}");
    drop(replies);
    assert_eq!(
        third.durable().await,
        Err(RowWriteError::ShuttingDown),
        "a writer that ends leaves nobody waiting"
    );
}

#[tokio::test(flavor = "current_thread")]
async fn other_rows_and_empty_or_large_batches_are_refused_and_nothing_is_submitted() {
    let (held, rows) = writer(1 << 20);
    let topics = Op::Put { space: Space::Topics, key: "router/t".to_owned(), value: Bytes::new() };
    let drop = Op::Drop { topic: TopicKey::parse("default/t").unwrap() };
    for foreign in [put("quarantine/due/1", 1), put("router", 1), delete("state/commits"), topics, drop] {
        let refused = rows.write(vec![put("router/a", 1), foreign]).await.unwrap_err();
        let said = refused.to_string();
        assert!(said.ends_with("may not be written this way: only rows of kv below router/"), "{said}");
    }
    assert_eq!(rows.write(Vec::new()).await, Err(RowWriteError::Empty));
    let large = rows.write(vec![put("router/a", BATCH_BYTES_MAX)]).await.unwrap_err();
    assert!(matches!(large, RowWriteError::TooLarge { max: BATCH_BYTES_MAX, .. }), "{large}");
    assert!(held.0.lock().is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn more_bytes_than_the_budget_wait_for_those_before_them() {
    let (held, rows) = writer(8 << 10);
    let first = rows.hand_over(vec![put("router/a", 6 << 10)]).await.unwrap();
    let waiting = tokio::spawn({
        let rows = rows.clone();
        async move { rows.write(vec![put("router/b", 6 << 10)]).await }
    });
    // Nobody waits for the answer any more, but its bytes are still on their way.
    drop(first);
    tokio::task::yield_now().await;
    assert_eq!(held.0.lock().len(), 1);
    let (_, reply) = held.0.lock().remove(0);
    reply.committed(&Outcome::Done(Done::default()));
    while held.0.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let (_, reply) = held.0.lock().remove(0);
    reply.committed(&Outcome::Done(Done::default()));
    assert_eq!(waiting.await.unwrap(), Ok(()));
    // A write that is larger than the whole budget takes all of it.
    let large = rows.hand_over(vec![put("router/c", 100 << 10)]).await.unwrap();
    held.0.lock().remove(0).1.committed(&Outcome::Done(Done::default()));
    assert_eq!(large.durable().await, Ok(()));
}
