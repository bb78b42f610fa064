//! Rows of other parts of the server share the commits of the bus, in order, and meet the same disk.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bytes::Bytes;
use harness::{Disk, publish, start, until};
use millrace_broker::{BrokerSettings, StopOutcome};
use millrace_bus::Reply;
use millrace_model::{Op, Requester, Space};
use millrace_shell::RowWriteError;
use millrace_store::{KeyRange, Store};

const PREFIX: &str = "router/";

fn put(key: &str, value: &'static str) -> Op {
    Op::Put { space: Space::Kv, key: key.to_owned(), value: Bytes::from_static(value.as_bytes()) }
}

fn delete(key: &str) -> Op {
    Op::Delete { space: Space::Kv, key: key.to_owned() }
}

fn row(disk: &Disk, key: &str) -> Option<Bytes> {
    let found = disk.store.scan(Space::Kv, &KeyRange::prefix(key), 1).unwrap();
    found.into_iter().next().map(|row| row.value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn rows_and_events_that_gather_during_a_sync_share_the_next_one_in_order() {
    let disk = Disk::new();
    let broker = start(BrokerSettings::default(), &disk);
    let (handle, rows) = (broker.handle().without_inline_commits(), broker.handle().row_writer(PREFIX));
    rows.write(vec![put("router/a", "0")]).await.unwrap();
    let (before, begun) = (disk.commits.load(SeqCst), disk.begun.load(SeqCst));
    disk.shut(true);
    let first = rows.hand_over(vec![put("router/a", "1")]).await.unwrap();
    until(|| disk.begun.load(SeqCst) > begun).await;
    let event = handle.hand_over(Requester::Trusted, publish(10)).await.unwrap();
    let mut later = Vec::new();
    for value in ["2", "3"] {
        later.push(rows.hand_over(vec![put("router/a", value), put("router/b", value)]).await.unwrap());
    }
    later.push(rows.hand_over(vec![delete("router/b")]).await.unwrap());
    until(|| handle.metrics().backlog_batches == 5).await;
    disk.shut(false);
    first.durable().await.unwrap();
    for write in later {
        write.durable().await.unwrap();
    }
    assert!(matches!(event.reply().await, Ok(Reply::Published { .. })));
    assert_eq!(disk.commits.load(SeqCst) - before, 2, "the one under way, and one for all that waited");
    assert_eq!((row(&disk, "router/a").as_deref(), row(&disk, "router/b")), (Some(&b"3"[..]), None));
    tokio::task::spawn_blocking(|| broker.end()).await.unwrap();
}

#[tokio::test]
async fn rows_wait_for_a_full_disk_and_new_ones_are_refused_meanwhile() {
    let disk = Disk::new();
    let broker = start(BrokerSettings::default(), &disk);
    let (handle, rows) = (broker.handle(), broker.handle().row_writer(PREFIX));
    rows.write(vec![put("router/old", "0")]).await.unwrap();
    disk.full.store(true, SeqCst);
    let kept = rows.hand_over(vec![put("router/a", "1")]).await.unwrap();
    until(|| handle.metrics().commits_retried > 0).await;
    let refused = rows.write(vec![put("router/b", "1")]).await;
    assert!(matches!(&refused, Err(RowWriteError::NoSpace(why)) if why.contains("just now")), "{refused:?}");
    let removal = rows.hand_over(vec![delete("router/old")]).await.unwrap();
    disk.full.store(false, SeqCst);
    kept.durable().await.unwrap();
    removal.durable().await.unwrap();
    assert!(row(&disk, "router/a").is_some() && row(&disk, "router/b").is_none());
    assert!(row(&disk, "router/old").is_none());
    tokio::task::spawn_blocking(|| broker.end()).await.unwrap();
}

#[tokio::test]
async fn a_store_that_fails_answers_the_rows_under_way_and_all_later_ones() {
    let disk = Disk::new();
    let broker = start(BrokerSettings::default(), &disk);
    let (handle, rows) = (broker.handle(), broker.handle().row_writer(PREFIX));
    disk.shut(true);
    let under_way = rows.hand_over(vec![put("router/a", "1")]).await.unwrap();
    until(|| disk.begun.load(SeqCst) > 0).await;
    let behind = rows.hand_over(vec![put("router/b", "1")]).await.unwrap();
    disk.fails.store(true, SeqCst);
    disk.shut(false);
    let failed = |result: &Result<(), RowWriteError>| matches!(result, Err(RowWriteError::StorageFailed(why)) if why.contains("disk full"));
    let answers = [under_way.durable().await, behind.durable().await];
    assert!(answers.iter().all(failed), "{answers:?}");
    handle.health().failure_told().await;
    assert!(failed(&rows.write(vec![put("router/c", "1")]).await));
    tokio::task::spawn_blocking(|| broker.end()).await.unwrap();
}

#[tokio::test]
async fn rows_handed_over_before_a_stop_are_written_and_later_ones_are_refused() {
    let disk = Disk::new();
    let broker = start(BrokerSettings::default(), &disk);
    let rows = broker.handle().row_writer(PREFIX);
    disk.shut(true);
    let before = rows.hand_over(vec![put("router/a", "1")]).await.unwrap();
    let stopped = broker.stop(Duration::ZERO).await;
    assert!(matches!(stopped, StopOutcome::Unwritten { batches: 1 }), "{stopped:?}");
    assert_eq!(rows.write(vec![put("router/b", "1")]).await, Err(RowWriteError::ShuttingDown));
    disk.shut(false);
    tokio::task::spawn_blocking(|| broker.end()).await.unwrap();
    before.durable().await.unwrap();
    assert!(row(&disk, "router/a").is_some() && row(&disk, "router/b").is_none());
}

/// Without the wake-up nothing would happen for an hour.
#[tokio::test]
async fn a_row_wakes_a_sleeping_writer() {
    const HOUR_MS: u64 = 3_600_000;
    let disk = Disk::new();
    let settings = BrokerSettings {
        watch_interval_ms: HOUR_MS,
        watch_idle_ms_max: HOUR_MS,
        maintain_interval_ms: HOUR_MS,
        wait_ms_max: HOUR_MS,
        ..BrokerSettings::default()
    };
    let broker = start(settings, &disk);
    let rows = broker.handle().row_writer(PREFIX);
    for value in ["1", "2", "3"] {
        rows.write(vec![put("router/a", value)]).await.unwrap();
    }
    assert_eq!(row(&disk, "router/a").as_deref(), Some(&b"3"[..]));
    tokio::task::spawn_blocking(|| broker.end()).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_is_dropped_leaves_no_row_writer_waiting() {
    for _ in 0..50 {
        let disk = Disk::new();
        let broker = start(BrokerSettings::default(), &disk);
        let rows = broker.handle().row_writer(PREFIX);
        let writer = tokio::spawn(async move {
            let mut written = 0;
            while rows.write(vec![put("router/a", "1")]).await.is_ok() {
                written += 1;
            }
            written
        });
        tokio::task::yield_now().await;
        drop(broker);
        writer.await.unwrap();
    }
}
