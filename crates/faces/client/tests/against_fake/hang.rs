//! The client detects a server that hangs, before or after the connection is established.

use crate::fake::Fake;
use millrace_client::{Client, ClientError, NewMessage};
use std::time::Duration;

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_unreachable() {
    // The server does not accept: only the kernel takes the connection, as for a stopped process.
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.connect_timeout = Duration::from_millis(50);
    let error = Client::connect(options).await.unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("no answer within 0.05 s"), "{error}");
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    let fake = Fake::start().await;
    let mut options = fake.options();
    options.connect_timeout = Duration::from_millis(50);
    options.idle_timeout = Duration::from_millis(90);
    options.give_up_after = Some(Duration::from_millis(100));
    let (client, _conn) = tokio::join!(Client::connect(options), fake.accept());
    let published = client.unwrap().publish("a", NewMessage::json(&1).unwrap()).await;
    let error = published.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("gave up after trying to reconnect for"), "{error}");
}
