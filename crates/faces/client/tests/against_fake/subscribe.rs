//! Subscriptions outlive connections, deliveries do not.

use std::time::Duration;

use crate::fake::{Conn, Fake};
use millrace_client::{AckMode, Client, ClientError, ErrorCode, StartFrom, SubscribeOptions};
use serde_json::Value;

fn options() -> SubscribeOptions {
    SubscribeOptions::new("a", "g").unwrap()
}

/// The option is sent again after a reconnect, too: otherwise a group would stop keeping the order of its keys.
#[tokio::test]
async fn order_per_key_is_asked_for_on_every_connection() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let mut wanted = options();
    wanted.sticky = true;
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        assert_eq!(subscribe["sticky"], true);
        conn.ok(&subscribe).await;
    };
    let (subscription, ()) = tokio::join!(client.subscribe(wanted), server);
    let _subscription = subscription.unwrap();
    drop(conn);
    let mut conn = fake.accept().await;
    assert_eq!(conn.expect("SUBSCRIBE").await["sticky"], true);
}

/// The client reads many frames before it hands over what they brought.
#[tokio::test]
async fn nothing_is_lost_when_much_arrives_at_once() {
    const EVENTS: u64 = 1000;
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let groups = ["g", "h"];
    let wanted = groups.map(|group| {
        let mut wanted = SubscribeOptions::new("a", group).unwrap();
        wanted.max_inflight = EVENTS as u32;
        wanted
    });
    let mut subscriptions = Vec::new();
    for wanted in wanted {
        let server = async {
            let subscribe = conn.expect("SUBSCRIBE").await;
            conn.ok(&subscribe).await;
        };
        let (subscription, ()) = tokio::join!(client.subscribe(wanted), server);
        subscriptions.push(subscription.unwrap());
    }
    // In runs of one group and of both in turn.
    for offset in 1..=EVENTS {
        conn.deliver("a", "g", offset).await;
        if offset % 5 != 0 {
            conn.deliver("a", "h", offset).await;
        }
    }
    for offset in 1..=EVENTS {
        assert_eq!(subscriptions[0].next().await.unwrap().offset().0, offset);
    }
    for offset in (1..=EVENTS).filter(|offset| offset % 5 != 0) {
        assert_eq!(subscriptions[1].next().await.unwrap().offset().0, offset);
    }
}

#[tokio::test]
async fn deliveries_arrive_and_are_acked() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let mut wanted = options().from(StartFrom::Earliest);
    wanted.ack_mode = Some(AckMode::Individual);
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        assert_eq!(subscribe["from"]["kind"], "earliest");
        assert_eq!(subscribe["ack_mode"], "individual");
        assert_eq!(subscribe["max_inflight"], 32);
        conn.ok(&subscribe).await;
        conn.deliver("a", "g", 1).await;
        conn.deliver("a", "g", 2).await;
    };
    let (subscription, ()) = tokio::join!(client.subscribe(wanted), server);
    let mut subscription = subscription.unwrap();
    assert_eq!(subscription.start.len(), 1);

    let first = subscription.next().await.unwrap();
    assert_eq!((first.offset().0, first.payload().as_str(), first.attempts()), (1, "1", 1));
    first.ack().await.unwrap();
    let ack = conn.expect("ACK").await;
    assert_eq!(ack["offset"], 1);
    assert!(ack.get("rid").is_none());

    let second = subscription.next().await.unwrap();
    let server = async {
        let ack = conn.expect("ACK").await;
        assert_eq!(ack["offset"], 2);
        conn.ok(&ack).await;
    };
    let (acked, ()) = tokio::join!(second.ack_confirmed(), server);
    acked.unwrap();

    second.nack(Some("too late"), Some(5)).await.unwrap();
    let nack = conn.expect("NACK").await;
    assert_eq!((&nack["reason"], &nack["delay_ms"]), (&"too late".into(), &5.into()));
}

#[tokio::test]
async fn after_a_reconnect_it_subscribes_again_without_the_seek_and_old_deliveries_are_void() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let mut wanted = options().from(StartFrom::Earliest);
    wanted.reset = true;
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        assert_eq!(subscribe["from"]["reset"], true);
        conn.ok(&subscribe).await;
        conn.deliver("a", "g", 1).await;
        conn.deliver("a", "g", 2).await;
    };
    let (subscription, ()) = tokio::join!(client.subscribe(wanted), server);
    let mut subscription = subscription.unwrap();
    let old = subscription.next().await.unwrap();
    drop(conn);

    let mut conn = fake.accept().await;
    let subscribe = conn.expect("SUBSCRIBE").await;
    assert!(subscribe["from"].get("reset").is_none(), "{subscribe}");
    conn.ok(&subscribe).await;
    conn.deliver("a", "g", 1).await;
    let again = subscription.next().await.unwrap();
    assert_eq!(again.offset().0, 1);
    assert!(matches!(old.ack_confirmed().await, Err(ClientError::Stale)));
    old.ack().await.unwrap();
    again.ack().await.unwrap();
    let server = async {
        assert_eq!(conn.expect("ACK").await["offset"], 1);
        assert!(conn.read().await.is_none(), "only the delivery of this connection is acked");
    };
    tokio::join!(client.close(), server);
}

#[tokio::test]
async fn credits_outlive_a_connection_as_far_as_they_were_not_used() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    client.flow(5).await.unwrap();
    let server = async {
        assert_eq!(conn.expect("FLOW").await["credits"], 5);
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.ok(&subscribe).await;
        for offset in 1..=3 {
            conn.deliver("a", "g", offset).await;
        }
        // A client that has received the answer to this PING has received the deliveries before it.
        let ping = conn.expect("PING").await;
        conn.ok(&ping).await;
    };
    let user = async {
        let subscription = client.subscribe(options()).await.unwrap();
        client.ping().await.unwrap();
        subscription
    };
    let (mut subscription, ()) = tokio::join!(user, server);
    assert_eq!(subscription.next().await.unwrap().offset().0, 1);
    drop(conn);
    let mut conn = fake.accept().await;
    assert_eq!(conn.expect("FLOW").await["credits"], 4, "one was taken");
    conn.expect("SUBSCRIBE").await;
}

/// Returns the next SUBSCRIBE; PINGs may come before it.
async fn next_subscribe(conn: &mut Conn) -> Value {
    loop {
        let frame = conn.read().await.unwrap();
        if frame["type"] != "PING" {
            assert_eq!(frame["type"], "SUBSCRIBE", "{frame}");
            return frame;
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_take_it_back_just_now_is_asked_again() {
    let fake = Fake::start().await;
    let mut patience = fake.options();
    // The client subscribes again after a third of this time.
    patience.idle_timeout = Duration::from_millis(1500);
    let (client, mut conn) = tokio::join!(Client::connect(patience), fake.accept());
    let client = client.unwrap();
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.ok(&subscribe).await;
    };
    let (subscription, ()) = tokio::join!(client.subscribe(options()), server);
    let mut subscription = subscription.unwrap();
    drop(conn);

    let mut conn = fake.accept().await;
    for code in ["rate_limited", "storage_failed", "limit_reached"] {
        let subscribe = next_subscribe(&mut conn).await;
        conn.refuse(&subscribe, code).await;
    }
    let subscribe = next_subscribe(&mut conn).await;
    conn.ok(&subscribe).await;
    conn.deliver("a", "g", 1).await;
    assert_eq!(subscription.next().await.unwrap().offset().0, 1);
}

#[tokio::test]
async fn a_refused_subscription_can_be_tried_again() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.refuse(&subscribe, "filter_conflict").await;
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.ok(&subscribe).await;
    };
    let asker = async {
        let error = client.subscribe(options()).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused(error) if error.code == ErrorCode::FilterConflict));
        let held = client.subscribe(options()).await.unwrap();
        let twice = client.subscribe(options()).await;
        assert!(matches!(twice, Err(ClientError::AlreadySubscribed { .. })));
        held
    };
    let (_held, ()) = tokio::join!(asker, server);
}

#[tokio::test]
async fn a_subscription_ends_when_the_server_says_so() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.ok(&subscribe).await;
        conn.send(
            serde_json::json!({"type": "ERROR", "code": "bad_topic", "message": "deleted", "topic": "a"}),
        )
        .await;
    };
    let (subscription, ()) = tokio::join!(client.subscribe(options()), server);
    let error = subscription.unwrap().next().await.unwrap_err();
    assert!(matches!(error, ClientError::Refused(error) if error.code == ErrorCode::BadTopic));
}

#[tokio::test]
async fn dropping_a_subscription_leaves_the_group() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.ok(&subscribe).await;
    };
    let (subscription, ()) = tokio::join!(client.subscribe(options()), server);
    drop(subscription);
    let unsubscribe = conn.expect("UNSUBSCRIBE").await;
    assert_eq!(unsubscribe["group"], "g");
}

#[tokio::test]
async fn closing_ends_subscriptions_and_later_requests() {
    let fake = Fake::start().await;
    let (client, mut conn) = tokio::join!(Client::connect(fake.options()), fake.accept());
    let client = client.unwrap();
    let server = async {
        let subscribe = conn.expect("SUBSCRIBE").await;
        conn.ok(&subscribe).await;
        assert!(conn.read().await.is_none());
    };
    let user = async {
        let mut subscription = client.subscribe(options()).await.unwrap();
        client.close().await;
        client.close().await;
        assert!(matches!(subscription.next().await, Err(ClientError::Closed)));
        assert!(matches!(client.ping().await, Err(ClientError::Closed)));
    };
    tokio::join!(user, server);
}
