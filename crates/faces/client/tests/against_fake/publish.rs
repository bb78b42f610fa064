//! A publish is confirmed once, whatever happens to connections in between.

use crate::fake::Fake;
use futures_util::FutureExt;
use millrace_client::{Client, ClientError, ErrorCode, NewMessage, PublishedPlace};
use tokio::io::AsyncWriteExt;

fn message(payload: u32) -> NewMessage {
    NewMessage::json(&payload).unwrap()
}

#[tokio::test]
async fn a_publish_resolves_when_it_is_confirmed() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let server = async {
        let publish = conn.expect("PUBLISH").await;
        assert_eq!(publish["key"], "k");
        assert_eq!(publish["headers"]["h"], "v");
        assert!(publish["id"].is_string(), "{publish}");
        conn.confirm(&publish, 7).await;
    };
    let (published, ()) = tokio::join!(client.publish("a", message(1).key("k").header("h", "v")), server);
    assert!(matches!(published.unwrap().place, PublishedPlace::At { offset, .. } if offset.0 == 7));
}

#[tokio::test]
async fn many_publishes_are_in_flight_and_confirmed_in_any_order() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let mut receipts = Vec::new();
    for n in 0..100 {
        receipts.push(client.publish_nowait("a", message(n)).await.unwrap());
    }
    let mut asked = Vec::new();
    for _ in 0..100 {
        asked.push(conn.expect("PUBLISH").await);
    }
    for publish in asked.iter().rev() {
        conn.confirm(publish, publish["payload"].as_u64().unwrap() + 1).await;
    }
    for (n, receipt) in receipts.into_iter().enumerate() {
        let published = receipt.await.unwrap();
        assert!(matches!(published.place, PublishedPlace::At { offset, .. } if offset.0 == n as u64 + 1));
    }
}

#[tokio::test]
async fn what_was_not_confirmed_is_sent_again_with_the_same_id_and_in_order() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let mut receipts = Vec::new();
    let mut first = Vec::new();
    for n in 0..3 {
        receipts.push(client.publish_nowait("a", message(n)).await.unwrap());
        first.push(conn.expect("PUBLISH").await);
    }
    conn.confirm(&first[1], 1).await;
    let confirmed = receipts.remove(1);
    confirmed.await.unwrap();
    drop(conn);

    let mut conn = fake.accept().await;
    for (asked, receipt) in [&first[0], &first[2]].into_iter().zip(receipts) {
        let again = conn.expect("PUBLISH").await;
        assert_eq!(&again, asked);
        conn.confirm(&again, 2).await;
        receipt.await.unwrap();
    }
}

#[tokio::test]
async fn a_publish_refused_because_the_server_stops_goes_to_the_next_one() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    let publish = conn.expect("PUBLISH").await;
    conn.refuse(&publish, "shutting_down").await;
    drop(conn);
    let mut conn = fake.accept().await;
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_handed_to_its_publisher() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    let publish = conn.expect("PUBLISH").await;
    conn.refuse(&publish, "limit_reached").await;
    let error = receipt.await.unwrap_err();
    assert!(matches!(error, ClientError::Refused(error) if error.code == ErrorCode::LimitReached));
    assert!(matches!(client.publish("a..b", message(1)).await, Err(ClientError::BadName(_))));
}

#[tokio::test]
async fn without_resend_a_lost_connection_is_told() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.resend = false;
    let (client, mut conn) = tokio::join!(Client::connect(options), fake.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    assert!(conn.expect("PUBLISH").await.get("id").is_none());
    drop(conn);
    assert!(matches!(receipt.await, Err(ClientError::Disconnected(_))));
}

#[tokio::test]
async fn without_reconnect_everything_ends_with_the_connection() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.reconnect = false;
    let (client, mut conn) = tokio::join!(Client::connect(options), fake.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    conn.expect("PUBLISH").await;
    drop(conn);
    assert!(matches!(receipt.await, Err(ClientError::Disconnected(_))));
    assert!(matches!(client.publish("a", message(2)).await, Err(ClientError::Disconnected(_))));
}

#[tokio::test]
async fn a_batch_is_confirmed_as_one() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let server = async {
        let batch = conn.expect("PUBLISH_BATCH").await;
        assert_eq!(batch["events"].as_array().unwrap().len(), 2);
        conn.send(serde_json::json!({
            "type": "PUBLISHED", "topic": "a", "offsets": [[0, 1], [0, 2]], "durability": "fsync", "rid": batch["rid"],
        }))
        .await;
    };
    let (published, ()) = tokio::join!(client.publish_batch("a", [message(1), message(2)]), server);
    assert_eq!(published.unwrap().offsets.len(), 2);
}

/// The client takes many requests and many answers at once. A PING is answered after what came before it.
#[tokio::test]
async fn many_confirmations_at_once_reach_their_publishers() {
    const EVENTS: u32 = 500;
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let mut receipts = Vec::new();
    for number in 0..EVENTS {
        receipts.push(client.publish_nowait("a", message(number)).await.unwrap());
    }
    let server = async {
        let mut publishes = Vec::new();
        for _ in 0..EVENTS {
            publishes.push(conn.expect("PUBLISH").await);
        }
        for (publish, offset) in publishes.iter().zip(1..) {
            conn.confirm(publish, offset).await;
        }
        let ping = conn.expect("PING").await;
        conn.send(serde_json::json!({"type": "PONG", "rid": ping["rid"]})).await;
    };
    let (pong, ()) = tokio::join!(client.ping(), server);
    pong.unwrap();
    for (receipt, number) in receipts.into_iter().zip(1..) {
        let published = receipt.now_or_never().expect("it was answered before the PING").unwrap();
        let offset = millrace_client::Offset(number);
        assert_eq!(published.place, PublishedPlace::At { partition: millrace_client::Partition(0), offset });
    }
}

#[tokio::test]
async fn a_full_window_makes_publishers_wait() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.publishes_inflight_max = 2;
    let (client, mut conn) = tokio::join!(Client::connect(options), fake.accept());
    let client = client.unwrap();
    let first = client.publish_nowait("a", message(1)).await.unwrap();
    let second = client.publish_nowait("a", message(2)).await.unwrap();
    let third = client.publish_nowait("a", message(3));
    tokio::pin!(third);
    tokio::select! {
        biased;
        _ = &mut third => panic!("there is no room"),
        publish = conn.expect("PUBLISH") => conn.confirm(&publish, 1).await,
    }
    first.await.unwrap();
    let third = third.await.unwrap();
    for offset in [2, 3] {
        let publish = conn.expect("PUBLISH").await;
        conn.confirm(&publish, offset).await;
    }
    second.await.unwrap();
    third.await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let fake = Fake::start().await;
    let options = fake.options();
    drop(fake);
    assert!(matches!(Client::connect(options).await, Err(ClientError::Unreachable { .. })));
}

#[tokio::test]
async fn an_event_too_large_for_the_server_fails_and_the_others_go_on() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.frame_bytes_max = 2000;
    let (client, mut conn) = tokio::join!(Client::connect(options), fake.accept());
    let client = client.unwrap();
    let text = |bytes: usize| NewMessage::json(&"x".repeat(bytes)).unwrap();
    assert!(matches!(client.publish("a", text(2000)).await, Err(ClientError::TooLarge { .. })));
    let small = client.publish_nowait("a", message(1)).await.unwrap();
    let large = client.publish_nowait("a", text(1000)).await.unwrap();
    conn.expect("PUBLISH").await;
    conn.expect("PUBLISH").await;
    conn.send(serde_json::json!({"type": "ERROR", "code": "too_large", "message": "at most 500"})).await;
    drop(conn);
    assert!(matches!(large.await, Err(ClientError::TooLarge { .. })));
    let mut conn = fake.accept().await;
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    small.await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_come_back_is_given_up() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.give_up_after = Some(std::time::Duration::ZERO);
    let (client, mut conn) = tokio::join!(Client::connect(options), fake.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    conn.expect("PUBLISH").await;
    drop((conn, fake));
    assert!(matches!(receipt.await, Err(ClientError::Unreachable { .. })));
    assert!(matches!(client.ping().await, Err(ClientError::Unreachable { .. })));
}

#[tokio::test]
async fn a_server_that_says_no_is_quoted() {
    let fake = Fake::start().await;
    let server = async {
        let (mut stream, _) = fake.listener.accept().await.unwrap();
        let body =
            r#"{"type":"about:blank","title":"t","status":401,"detail":"bad token","code":"unauthorized"}"#;
        let head = format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        stream
    };
    let (client, _stream) = tokio::join!(Client::connect(fake.options()), server);
    let error = client.unwrap_err();
    assert!(
        matches!(&error, ClientError::Rejected { status: 401, detail, .. } if detail == "bad token"),
        "{error}"
    );
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_tried_again() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.idle_timeout = std::time::Duration::from_millis(30);
    let (client, silent) = tokio::join!(Client::connect(options), fake.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    // On a slow machine even a server that answers may look silent for a while: then the client connects once more.
    let talkative = async {
        loop {
            let mut conn = fake.accept().await;
            while let Some(frame) = conn.read().await {
                if frame["type"] == "PUBLISH" {
                    conn.confirm(&frame, 1).await;
                } else {
                    conn.send(serde_json::json!({"type": "PONG"})).await;
                }
            }
        }
    };
    tokio::select! {
        confirmed = receipt => assert!(confirmed.is_ok()),
        () = talkative => {}
    }
    drop(silent);
}
