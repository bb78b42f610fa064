//! Several servers: which one the client uses when some of them are away, and what happens to requests under way when
//! the lead moves.

use crate::fake::{Fake, options_for};
use millrace_client::{Client, ClientError, ErrorCode, NewMessage, PublishedPlace, SubscribeOptions};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

fn message(payload: u32) -> NewMessage {
    NewMessage::json(&payload).unwrap()
}

/// Returns the URL of a server that is gone.
async fn gone() -> String {
    Fake::start().await.url()
}

#[tokio::test]
async fn a_dead_first_server_is_passed_over() {
    let second = Fake::start().await;
    let mut options = second.options();
    options.urls.insert(0, gone().await);
    let (client, mut conn) = tokio::join!(Client::connect(options), second.accept());
    let client = client.unwrap();
    assert_eq!(client.url(), Some(second.url()));
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}

#[tokio::test]
async fn when_no_server_answers_the_error_names_each() {
    let (first, second) = (gone().await, gone().await);
    let mut options = Fake::start().await.options();
    options.urls = vec![format!("{first},{second}")];
    let error = Client::connect(options).await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    let text = error.to_string();
    assert!(text.contains(&first) && text.contains(&second) && text.contains("any of 2 servers"), "{text}");
}

#[tokio::test]
async fn when_every_server_says_no_the_refusal_is_the_error() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let refuse = async |fake: &Fake| {
        let (mut stream, _) = fake.listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        stream
    };
    let connecting = Client::connect(options_for(&[&first, &second]));
    let (client, _, _) = tokio::join!(connecting, refuse(&first), refuse(&second));
    assert!(matches!(client.unwrap_err(), ClientError::Rejected { status: 401, .. }));
}

#[tokio::test]
async fn after_a_lost_connection_the_other_servers_come_first() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let mut options = options_for(&[&first, &second]);
    // A client that waited before it tried the second server would hang here.
    (options.backoff_start, options.backoff_max) = (Duration::from_secs(3600), Duration::from_secs(3600));
    let (client, mut conn) = tokio::join!(Client::connect(options), first.accept());
    let client = client.unwrap();
    assert_eq!(client.url(), Some(first.url()));
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    conn.expect("PUBLISH").await;
    drop(conn);
    let mut conn = second.accept().await;
    let publish = conn.expect("PUBLISH").await;
    assert_eq!(client.url(), Some(second.url()));
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}

/// Every publish arrives under its id, in order, and none is lost or sent twice to the new leader.
#[tokio::test]
async fn when_the_lead_moves_unconfirmed_publishes_go_to_the_new_leader() {
    const PUBLISHES: u64 = 100;
    let (old, idle, new) = (Fake::start().await, Fake::start().await, Fake::start().await);
    let options = options_for(&[&old, &idle, &new]);
    let (client, mut conn) = tokio::join!(Client::connect(options), old.accept());
    let client = client.unwrap();
    let subscribing = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.ok(&subscribe).await;
    };
    let wanted = SubscribeOptions::new("a", "g").unwrap();
    let (subscription, ()) = tokio::join!(client.subscribe(wanted), subscribing);
    let mut subscription = subscription.unwrap();

    let mut receipts = Vec::new();
    for n in 0..PUBLISHES {
        receipts.push(client.publish_nowait("a", message(n as u32)).await.unwrap());
    }
    // The old leader reads half of the publishes, confirms every third of those, and loses the lead.
    let mut confirmed = Vec::new();
    for n in 0..PUBLISHES / 2 {
        let publish = conn.expect("PUBLISH").await;
        if n % 3 == 0 {
            conn.confirm(&publish, n + 1).await;
            confirmed.push(publish["id"].as_str().unwrap().to_owned());
        }
    }
    conn.moved(Some(&new.url())).await;

    let mut conn = new.accept().await;
    let subscribe = conn.expect("SUBSCRIBE").await;
    conn.ok(&subscribe).await;
    let mut ids = Vec::new();
    for n in (0..PUBLISHES).filter(|n| *n >= PUBLISHES / 2 || n % 3 != 0) {
        let publish = conn.expect("PUBLISH").await;
        assert_eq!(publish["payload"], n);
        conn.confirm(&publish, n + 1).await;
        ids.push(publish["id"].as_str().unwrap().to_owned());
    }
    for (n, receipt) in receipts.into_iter().enumerate() {
        let published = receipt.await.unwrap();
        assert!(matches!(published.place, PublishedPlace::At { offset, .. } if offset.0 == n as u64 + 1));
    }
    ids.extend(confirmed);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len() as u64, PUBLISHES, "every publish has one id of its own");
    conn.deliver("a", "g", 7).await;
    assert_eq!(subscription.next().await.unwrap().offset().0, 7);
    assert_eq!(client.url(), Some(new.url()));
    assert!(idle.is_untouched(), "the leader was named, no other server is asked");
}

#[tokio::test]
async fn a_publish_that_is_refused_with_moved_goes_to_the_leader() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let (client, mut conn) = tokio::join!(Client::connect(options_for(&[&old, &new])), old.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    let first = conn.expect("PUBLISH").await;
    conn.refuse(&first, "moved").await;
    conn.close(1012, "").await;
    let mut conn = new.accept().await;
    let again = conn.expect("PUBLISH").await;
    assert_eq!(first, again);
    conn.confirm(&again, 1).await;
    receipt.await.unwrap();
}

/// A server that loses the lead answers every request before it closes the connection: also a client that sends nothing
/// again learns that nothing was done.
#[tokio::test]
async fn every_request_that_is_refused_with_moved_is_answered() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let mut options = options_for(&[&old, &new]);
    options.resend = false;
    let (client, mut conn) = tokio::join!(Client::connect(options), old.accept());
    let client = client.unwrap();
    let first = client.publish_nowait("a", message(1)).await.unwrap();
    let second = client.publish_nowait("a", message(2)).await.unwrap();
    let third = client.publish_nowait("a", message(3)).await.unwrap();
    for _ in 0..2 {
        let publish = conn.expect("PUBLISH").await;
        conn.refuse(&publish, "moved").await;
    }
    conn.expect("PUBLISH").await;
    conn.moved(Some(&new.url())).await;
    for refused in [first, second] {
        let error = refused.await.unwrap_err();
        assert!(matches!(error, ClientError::Refused(error) if error.code == ErrorCode::Moved));
    }
    assert!(matches!(third.await, Err(ClientError::Disconnected(_))));
    let mut conn = new.accept().await;
    let receipt = client.publish_nowait("a", message(4)).await.unwrap();
    let publish = conn.expect("PUBLISH").await;
    assert_eq!(publish["payload"], 4);
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}

/// A server whose first frames a client reads too late may only get the close frame across.
#[tokio::test]
async fn a_close_with_1012_is_enough() {
    let (old, new, other) = (Fake::start().await, Fake::start().await, Fake::start().await);
    let options = options_for(&[&old, &other, &new]);
    let (client, mut conn) = tokio::join!(Client::connect(options), old.accept());
    let client = client.unwrap();
    conn.close(1012, &new.url()).await;
    // A proxy may close with the same code and another text: then the next server of the list is tried.
    let mut conn = new.accept().await;
    conn.close(1012, "Service Restart").await;
    let mut conn = other.accept().await;
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}

#[tokio::test]
async fn without_a_leader_all_servers_are_asked_until_one_leads() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let mut options = options_for(&[&first, &second]);
    // Neither option ends the search: a server that does not lead is no lost connection.
    options.give_up_after = Some(Duration::MAX);
    let (client, mut conn) = tokio::join!(Client::connect(options), first.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    conn.moved(None).await;
    for round in 0..3 {
        drop(second.accept_and_move(None).await);
        if round < 2 {
            drop(first.accept_and_move(None).await);
        }
    }
    let mut conn = first.accept().await;
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}

#[tokio::test]
async fn a_search_without_a_leader_ends_when_it_has_lasted_too_long() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.give_up_after = Some(Duration::ZERO);
    let (client, mut conn) = tokio::join!(Client::connect(options), fake.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    conn.moved(None).await;
    let error = receipt.await.unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("names no leader"), "{error}");
    assert_eq!(client.url(), None);
}

/// `reconnect` is about lost connections; a server that has never led belongs to connecting.
#[tokio::test]
async fn without_reconnect_the_leader_is_still_looked_for_once() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let mut options = options_for(&[&first, &second]);
    options.reconnect = false;
    let (client, mut conn) = tokio::join!(Client::connect(options), first.accept());
    let client = client.unwrap();
    conn.moved(None).await;
    let mut conn = second.accept().await;
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
    // The second server has led: this is a lost connection.
    conn.moved(Some(&first.url())).await;
    let error = client.publish("a", message(2)).await.unwrap_err();
    assert!(matches!(error, ClientError::Disconnected(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_rejects_this_client_does_not_end_it_while_others_may_come_back() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let (client, mut conn) = tokio::join!(Client::connect(options_for(&[&first, &second])), first.accept());
    let client = client.unwrap();
    let receipt = client.publish_nowait("a", message(1)).await.unwrap();
    conn.expect("PUBLISH").await;
    drop(conn);
    let (mut stream, _) = second.listener.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    // The round had another server, which was lost a moment ago and may be there again.
    let mut conn = first.accept().await;
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}
