//! The shell around the engine: group commit, backpressure, failures, stop.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use harness::{Disk, publish, start, topic, until};
use millrace_broker::{BrokerHandle, BrokerSettings, BusConnection, Item, Received, StopOutcome};
use millrace_bus::{BusError, From, Reply, Request, Subscribe};
use millrace_model::{BATCH_BYTES_MAX, Filter, Group, Namespace, Offset, Requester};

fn subscribe() -> Request {
    Request::Subscribe(Subscribe {
        topic: topic(),
        group: Group::new("g").unwrap(),
        from: Some(From::Earliest),
        reset: false,
        max_inflight: Some(1000),
        ack_mode: None,
        sticky: false,
        filter: Filter::default(),
    })
}

fn open(handle: &BrokerHandle) -> BusConnection {
    handle.open(Namespace::default()).unwrap()
}

/// Takes items and reports them as written, until `count` items have come.
async fn items(link: &BusConnection, count: usize) -> Vec<Item> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut items = Vec::new();
        let taken = tokio::time::timeout(Duration::from_secs(5), link.receive(&mut items, 64, 1 << 20)).await;
        match taken.expect("items in time") {
            Received::Items { bytes } => link.written(bytes),
            Received::Closed => panic!("closed after {} of {count}", all.len()),
        }
        all.append(&mut items);
    }
    all
}

#[tokio::test]
async fn what_gathers_during_a_sync_shares_the_next() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let link = open(&runtime.handle());
    link.send(&Requester::Trusted, &mut vec![(1, publish(10))]).await.unwrap();
    items(&link, 1).await;
    disk.shut(true);
    link.send(&Requester::Trusted, &mut vec![(2, publish(10))]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    link.send(&Requester::Trusted, &mut (3..203).map(|number| (number, publish(10))).collect())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = disk.commits.load(SeqCst);
    disk.shut(false);
    let answers = items(&link, 201).await;
    for (at, item) in answers.iter().enumerate() {
        let Item::Reply { request, reply: Reply::Published { at: Some((_, offset)), .. } } = item else {
            panic!("{item:?}")
        };
        assert_eq!((*request, offset.0), (at as u64 + 2, at as u64 + 2));
    }
    assert_eq!(disk.commits.load(SeqCst) - before, 2, "one that was under way, one for all the rest");
    runtime.end();
}

/// The thread that decided also commits, so another one has to do the deciding meanwhile.
#[tokio::test]
async fn a_stuck_disk_holds_up_only_what_has_to_be_durable() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    assert!(matches!(handle.call(Requester::Trusted, publish(10)).await, Ok(Reply::Published { .. })));
    disk.shut(true);
    let link = open(&handle);
    link.send(&Requester::Trusted, &mut vec![(1, publish(10))]).await.unwrap();
    for _ in 0..100 {
        let reply = handle.call(Requester::Trusted, Request::DescribeTopic { topic: topic() }).await;
        assert!(!matches!(reply, Err(_) | Ok(Reply::Refused(_))), "{reply:?}");
    }
    disk.shut(false);
    items(&link, 1).await;
    runtime.end();
}

/// With a single worker: tokio must move its other tasks to another thread, or no other task would run while an edge
/// waits for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lone_publisher_commits_itself_and_holds_up_nobody_else() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    let publisher = handle.clone();
    let published = tokio::spawn(async move {
        for _ in 0..1000 {
            assert!(matches!(
                publisher.call(Requester::Trusted, publish(10)).await,
                Ok(Reply::Published { .. })
            ));
        }
    });
    published.await.unwrap();
    // Not all of them: at times a thread of the workers is awake to do the maintenance.
    assert!(disk.by_helpers.load(SeqCst) > 100, "{:?}", disk.by_helpers);

    disk.shut(true);
    let link = open(&handle);
    let stuck = tokio::spawn(async move {
        link.send(&Requester::Trusted, &mut vec![(1, publish(10))]).await.unwrap();
        items(&link, 1).await
    });
    let asker = handle.clone();
    let served = tokio::spawn(async move {
        for _ in 0..100 {
            let reply = asker.call(Requester::Trusted, Request::DescribeTopic { topic: topic() }).await;
            assert!(!matches!(reply, Err(_) | Ok(Reply::Refused(_))), "{reply:?}");
        }
    });
    served.await.unwrap();
    disk.shut(false);
    stuck.await.unwrap();
    tokio::task::spawn_blocking(|| runtime.end()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_end_waits_for_an_edge_that_commits() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    assert!(matches!(handle.call(Requester::Trusted, publish(10)).await, Ok(Reply::Published { .. })));
    disk.shut(true);
    let link = open(&handle);
    let asked =
        tokio::spawn(async move { link.send(&Requester::Trusted, &mut vec![(1, publish(10))]).await });
    while handle.metrics().backlog_batches == 0 {
        tokio::task::yield_now().await;
    }
    let before = disk.commits.load(SeqCst);
    let opener = disk.clone();
    let end = tokio::task::spawn_blocking(move || {
        // Longer than an end takes that does not wait for the edge.
        std::thread::sleep(Duration::from_millis(50));
        opener.shut(false);
    });
    tokio::task::spawn_blocking(|| runtime.end()).await.unwrap();
    assert_eq!(disk.commits.load(SeqCst), before + 1, "what was under way is done when it returns");
    end.await.unwrap();
    let _ = asked.await.unwrap();
}

#[tokio::test]
async fn a_slow_disk_pushes_back_to_whoever_asks() {
    let disk = Disk::new();
    let settings =
        BrokerSettings { backlog_bytes_max: 10_000, request_units_max: 20, ..BrokerSettings::default() };
    let runtime = start(settings, &disk);
    let handle = runtime.handle();
    let link = open(&handle);
    disk.shut(true);
    let mut requests: Vec<_> = (1..=100).map(|number| (number, publish(2000))).collect();
    let asked =
        tokio::time::timeout(Duration::from_millis(300), link.send(&Requester::Trusted, &mut requests)).await;
    assert!(asked.is_err(), "100 requests found room");
    let view = handle.metrics();
    assert!(view.backlog_bytes < 10_000 + 40_000, "{view:?}");
    disk.shut(false);
    // Nobody takes the answers while this sends requests, and none of them is lost.
    link.send(&Requester::Trusted, &mut (101..=200).map(|number| (number, publish(2000))).collect())
        .await
        .unwrap();
    let stopped = runtime.stop(Duration::from_secs(5)).await;
    assert_eq!(stopped, StopOutcome::Finished);
    runtime.end();
}

#[tokio::test]
async fn a_failed_commit_is_told_to_everyone_and_nothing_is_written_after() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    assert!(matches!(handle.call(Requester::Trusted, publish(1)).await, Ok(Reply::Published { .. })));
    disk.fails.store(true, SeqCst);
    assert!(matches!(
        handle.call(Requester::Trusted, publish(1)).await,
        Ok(Reply::Refused(BusError::StorageFailed(_)))
    ));
    disk.fails.store(false, SeqCst);
    assert!(matches!(
        handle.call(Requester::Trusted, publish(1)).await,
        Ok(Reply::Refused(BusError::StorageFailed(_)))
    ));
    assert!(handle.health().storage_failed().unwrap().contains("disk full"));
    assert!(!handle.health().ready());
    let started = Instant::now();
    assert_eq!(runtime.stop(Duration::from_secs(5)).await, StopOutcome::CutShort);
    assert!(started.elapsed() < Duration::from_secs(1), "there is nothing to wait for");
    runtime.end();
}

async fn goes_through_in_the_end() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    assert!(matches!(handle.call(Requester::Trusted, publish(1)).await, Ok(Reply::Published { .. })));
    disk.full.store(true, SeqCst);
    let link = open(&handle);
    link.send(&Requester::Trusted, &mut vec![(2, publish(10))]).await.unwrap();
    until(|| handle.metrics().commits_retried > 3).await;
    let health = handle.health();
    assert!(health.retrying().unwrap().contains("just now") && !health.ready());
    assert!(health.commit_age() > Duration::ZERO && health.storage_failed().is_none());
    // Publishes accepted before the engine learns of the full disk wait; later ones are refused at once. Requests that
    // only read are answered.
    let mut calls = tokio::task::JoinSet::new();
    let refused = loop {
        let caller = handle.clone();
        calls.spawn(async move { caller.call(Requester::Trusted, publish(10)).await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Some(answered) = calls.try_join_next() {
            break answered.unwrap();
        }
    };
    assert!(matches!(refused, Ok(Reply::Refused(BusError::NoSpace(_)))), "{refused:?}");
    let looked = handle.call(Requester::Trusted, Request::DescribeTopic { topic: topic() }).await;
    assert!(!matches!(looked, Err(_) | Ok(Reply::Refused(_))), "{looked:?}");

    disk.full.store(false, SeqCst);
    let answer = items(&link, 1).await;
    assert!(
        matches!(&answer[0], Item::Reply { reply: Reply::Published { at: Some((_, Offset(2))), .. }, .. }),
        "the first one that waited is the first one stored: {answer:?}"
    );
    let mut stored = 2;
    while let Some(answered) = calls.join_next().await {
        match answered.unwrap() {
            Ok(Reply::Published { .. }) => stored += 1,
            Ok(Reply::Refused(BusError::NoSpace(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    until(|| health.ready() && health.no_space().is_none()).await;
    let last = loop {
        match handle.call(Requester::Trusted, publish(1)).await {
            Ok(Reply::Published { at: Some((_, offset)), .. }) => break offset,
            Ok(Reply::Refused(BusError::NoSpace(_))) => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(last.0, stored + 1, "each of them is there once");
    assert_eq!(handle.metrics().backlog_batches, 0);
    tokio::task::spawn_blocking(|| runtime.end()).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_left_nothing_is_tried_again_until_it_comes_through() {
    goes_through_in_the_end().await;
}

/// The calling task commits inline at first, and hands a commit that wrote nothing over to the workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_publisher_whose_commit_left_nothing_hands_it_over() {
    goes_through_in_the_end().await;
}

#[tokio::test]
async fn a_runtime_whose_disk_is_full_can_be_ended() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    disk.full.store(true, SeqCst);
    let link = open(&handle);
    link.send(&Requester::Trusted, &mut vec![(1, publish(10))]).await.unwrap();
    until(|| handle.metrics().commits_retried > 0).await;
    assert_eq!(runtime.stop(Duration::from_millis(20)).await, StopOutcome::Unwritten { batches: 1 });
    tokio::task::spawn_blocking(|| runtime.end()).await.unwrap();
    assert_eq!(link.receive(&mut Vec::new(), 1, 1).await, Received::Closed);
}

#[tokio::test]
async fn a_stuck_commit_makes_the_shell_not_ready_until_it_moves() {
    let disk = Disk::new();
    let settings = BrokerSettings { commit_stall_ms_max: 1, ..BrokerSettings::default() };
    let runtime = start(settings, &disk);
    let handle = runtime.handle();
    disk.shut(true);
    let link = open(&handle);
    link.send(&Requester::Trusted, &mut vec![(1, publish(10))]).await.unwrap();
    until(|| handle.health().stall().is_some()).await;
    assert!(!handle.health().ready());
    disk.shut(false);
    items(&link, 1).await;
    until(|| handle.health().ready()).await;
    runtime.end();
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_refused_alone() {
    // First the bound of every store, which the writer checks itself; then a store's own bound, which only the store
    // knows.
    for (own_max, small, large) in [(usize::MAX, 10, BATCH_BYTES_MAX + 1), (5000, 10, 6000)] {
        let disk = Disk::new();
        disk.bytes_max.store(own_max, SeqCst);
        let settings = BrokerSettings { backlog_bytes_max: 100 << 20, ..BrokerSettings::default() };
        let runtime = start(settings, &disk);
        let handle = runtime.handle();
        let link = open(&handle);
        link.send(&Requester::Trusted, &mut vec![(1, publish(small))]).await.unwrap();
        items(&link, 1).await;
        disk.shut(true);
        let sizes = [small, large, small, small, large, large, small];
        link.send(
            &Requester::Trusted,
            &mut (2..).zip(sizes).map(|(number, bytes)| (number, publish(bytes))).collect(),
        )
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        disk.shut(false);
        let mut answers: Vec<_> = items(&link, sizes.len())
            .await
            .into_iter()
            .map(|item| match item {
                Item::Reply { request, reply: Reply::Published { at: Some((_, offset)), .. } } => {
                    (request, Some(offset.0))
                }
                Item::Reply { request, reply: Reply::Refused(error) } => {
                    assert_eq!(error.code().as_str(), "too_large", "{error}");
                    (request, None)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        // The engine may refuse an event that it can see to be too large before others are committed.
        answers.sort_unstable();
        let expected =
            [(2, Some(2)), (3, None), (4, Some(3)), (5, Some(4)), (6, None), (7, None), (8, Some(5))];
        assert_eq!(answers, expected, "{large}");
        assert!(handle.health().ready(), "{large}");
        assert!(matches!(handle.call(Requester::Trusted, publish(small)).await, Ok(Reply::Published { .. })));
        assert_eq!(handle.metrics().backlog_bytes, 0);
        runtime.end();
    }
}

#[tokio::test]
async fn a_store_that_panics_counts_as_failed() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    disk.panics.store(true, SeqCst);
    let reply = runtime.handle().call(Requester::Trusted, publish(1)).await;
    assert!(matches!(reply, Ok(Reply::Refused(BusError::StorageFailed(_)))), "{reply:?}");
    runtime.end();
}

#[tokio::test]
async fn a_read_that_fails_is_tried_again() {
    let disk = Disk::new();
    let first = start(BrokerSettings::default(), &disk);
    first.handle().call(Requester::Trusted, publish(1)).await.unwrap();
    first.end();
    disk.unreadable.store(1, SeqCst);
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    let link = open(&handle);
    link.send(&Requester::Trusted, &mut vec![(1, subscribe())]).await.unwrap();
    let answers = items(&link, 2).await;
    assert!(matches!(&answers[1], Item::Delivery { event, .. } if event.offset == Offset(1)), "{answers:?}");
    assert_eq!(handle.metrics().reads_failed, 1);
    runtime.end();
}

#[tokio::test]
async fn a_connection_that_does_not_read_is_held_back_and_goes_on_when_it_does() {
    let disk = Disk::new();
    let settings = BrokerSettings {
        outbox_soft_bytes: 20_000,
        outbox_hard_bytes: 1_000_000,
        ..BrokerSettings::default()
    };
    let runtime = start(settings, &disk);
    let handle = runtime.handle();
    let link = open(&handle);
    link.send(&Requester::Trusted, &mut vec![(1, subscribe())]).await.unwrap();
    items(&link, 1).await;
    for _ in 0..200 {
        handle.call(Requester::Trusted, publish(1000)).await.unwrap();
    }
    assert!(link.congested());
    let relieved = tokio::time::timeout(Duration::from_millis(50), link.relieved()).await;
    assert!(relieved.is_err(), "relieved without having read");
    let offsets: Vec<_> = items(&link, 200)
        .await
        .into_iter()
        .map(|item| match item {
            Item::Delivery { event, .. } => event.offset.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(offsets, (1..=200).collect::<Vec<_>>());
    link.relieved().await;
    runtime.end();
}

#[tokio::test]
async fn everyone_learns_that_the_runtime_has_ended() {
    let disk = Disk::new();
    let runtime = start(BrokerSettings::default(), &disk);
    let handle = runtime.handle();
    let link = open(&handle);
    assert_eq!(runtime.stop(Duration::from_secs(5)).await, StopOutcome::Finished);
    assert!(matches!(
        handle.call(Requester::Trusted, publish(1)).await,
        Ok(Reply::Refused(BusError::ShuttingDown))
    ));
    runtime.end();
    assert!(handle.call(Requester::Trusted, publish(1)).await.is_err());
    assert!(handle.open(Namespace::default()).is_err());
    assert_eq!(link.receive(&mut Vec::new(), 1, 1).await, Received::Closed);
    assert!(link.send(&Requester::Trusted, &mut vec![(1, publish(1))]).await.is_err());
}
