//! The batch writer passes whole batches on, tells a failed check from a failure, bounds what is under way, and says
//! when the engine must look at the store.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use millrace_model::*;
use millrace_shell::{BatchWriter, RowCommits, RowReply, RowWriteError};
use millrace_store::StoreError;
use parking_lot::Mutex;
use tokio::task::yield_now;

/// Keeps what is submitted until the test settles it.
#[derive(Default)]
struct Held {
    batches: Mutex<Vec<(Batch, RowReply)>>,
    news: AtomicUsize,
}

impl RowCommits for Held {
    fn submit(&self, batch: Batch, reply: RowReply) -> Result<(), RowWriteError> {
        self.batches.lock().push((batch, reply));
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp(77)
    }

    fn tell_news(&self) {
        self.news.fetch_add(1, Relaxed);
    }
}

fn batch(space: Space, bytes: usize) -> Batch {
    let check = Check::Present { space, key: "k".to_owned() };
    let op = Op::Put { space, key: "k".to_owned(), value: Bytes::from(vec![b'x'; bytes]) };
    Batch { nonce: 7, now: Timestamp(5), durability: Durability::Fsync, checks: vec![check], ops: vec![op] }
}

fn writer(batches_max: usize) -> (Arc<Held>, BatchWriter) {
    let held = Arc::new(Held::default());
    (held.clone(), BatchWriter::new(held, batches_max))
}

fn refused() -> Outcome {
    Outcome::Refused(Refusal { check: 0, found: None })
}

#[tokio::test(flavor = "current_thread")]
async fn a_failed_check_is_no_failure() {
    let (held, writer) = writer(8);
    let write = |space| {
        let writer = writer.clone();
        tokio::spawn(async move { writer.write(batch(space, 1)).await })
    };
    let writes = [Space::Schedules, Space::Due, Space::Due, Space::Due].map(write);
    while held.batches.lock().len() < 4 {
        yield_now().await;
    }
    let batches = std::mem::take(&mut *held.batches.lock());
    assert!(
        batches.iter().all(|(batch, _)| (batch.nonce, batch.checks.len()) == (7, 1)),
        "as they were given"
    );
    let mut replies = batches.into_iter().map(|(_, reply)| reply);
    replies.next().unwrap().committed(&Outcome::Done(Done::default()));
    replies.next().unwrap().committed(&Outcome::Done(Done::default()));
    replies.next().unwrap().committed(&refused());
    replies.next().unwrap().failed(&StoreError::Poisoned("broken".into()));
    let [row, delayed, beaten, failed] = writes;
    assert_eq!(
        (row.await.unwrap(), delayed.await.unwrap(), beaten.await.unwrap()),
        (Ok(true), Ok(true), Ok(false))
    );
    assert!(
        matches!(failed.await.unwrap(), Err(RowWriteError::StorageFailed(why)) if why.contains("broken"))
    );
    assert_eq!(held.news.load(Relaxed), 1, "only a delayed event that was written is news for the engine");
}

#[tokio::test(flavor = "current_thread")]
async fn a_batch_that_is_too_large_is_refused_and_others_wait_for_their_turn() {
    let (held, writer) = writer(1);
    let large = writer.write(batch(Space::Schedules, BATCH_BYTES_MAX + 1)).await;
    assert!(matches!(large, Err(RowWriteError::TooLarge { max: BATCH_BYTES_MAX, .. })), "{large:?}");
    let second = writer.clone();
    let first = tokio::spawn(async move { writer.write(batch(Space::Schedules, 1)).await });
    let second = tokio::spawn(async move { second.write(batch(Space::Schedules, 2)).await });
    for _ in 0..2 {
        while held.batches.lock().is_empty() {
            yield_now().await;
        }
        let (_, reply) = held.batches.lock().pop().unwrap();
        yield_now().await;
        assert!(held.batches.lock().is_empty(), "one at a time");
        reply.committed(&Outcome::Done(Done::default()));
    }
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(true), Ok(true)));
}
