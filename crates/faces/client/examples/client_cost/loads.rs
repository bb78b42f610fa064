//! The loads.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use millrace_client::{
    Client, ClientOptions, JsonText, NewMessage, StartFrom, SubscribeOptions, Subscription,
};

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) type Load = fn(Client, u64) -> Running;

pub(crate) const LOADS: &[(&str, Load)] = &[
    ("backlog", |client, events| Box::pin(backlog(client, events))),
    ("one-by-one", |client, events| Box::pin(one_by_one(client, events))),
    ("inflight", |client, events| Box::pin(inflight(client, events))),
    ("serial", |client, events| Box::pin(serial(client, events))),
    ("tasks", |client, events| Box::pin(tasks(client, events))),
];

pub(crate) const WINDOW: u64 = 1000;
const ACK_EVERY: u64 = 100;
const IN_FLIGHT: usize = 256;
const ANSWERS_PER_TURN: usize = 32;
const TASKS: u64 = 64;

pub(crate) async fn connect(url: &str) -> Client {
    let options = ClientOptions { reconnect: false, resend: false, ..ClientOptions::new(url) };
    Client::connect(options).await.unwrap()
}

async fn subscribe(client: &Client) -> Subscription {
    let options = SubscribeOptions::new("t", "g").unwrap().from(StartFrom::Earliest);
    client.subscribe(SubscribeOptions { max_inflight: WINDOW as u32, ..options }).await.unwrap()
}

/// Takes what is there, at most 100, and acknowledges it together.
async fn backlog(client: Client, events: u64) {
    let mut subscription = subscribe(&client).await;
    let mut taken = 0;
    while taken < events {
        let mut last = subscription.next().await.unwrap();
        taken += 1;
        for _ in 1..ACK_EVERY {
            let Some(next) = subscription.try_next().unwrap() else { break };
            last = next;
            taken += 1;
        }
        last.ack().await.unwrap();
    }
}

/// Awaits each event, and acknowledges every hundredth.
async fn one_by_one(client: Client, events: u64) {
    let mut subscription = subscribe(&client).await;
    for taken in 1..=events {
        let next = subscription.next().await.unwrap();
        if taken % ACK_EVERY == 0 {
            next.ack().await.unwrap();
        }
    }
}

fn message() -> NewMessage {
    NewMessage::new(JsonText::parse(&format!("\"{}\"", "x".repeat(254))).unwrap())
}

async fn inflight(client: Client, events: u64) {
    let (message, mut waiting) = (message(), VecDeque::new());
    for _ in 0..events {
        waiting.push_back(client.publish_nowait("t", message.clone()).await.unwrap());
        if waiting.len() >= IN_FLIGHT {
            for receipt in waiting.drain(..ANSWERS_PER_TURN) {
                receipt.await.unwrap();
            }
        }
    }
    for receipt in waiting {
        receipt.await.unwrap();
    }
}

async fn serial(client: Client, events: u64) {
    let message = message();
    for _ in 0..events {
        client.publish("t", message.clone()).await.unwrap();
    }
}

/// Tasks that share a client, each with one publish at a time. Their polls are not counted.
async fn tasks(client: Client, events: u64) {
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        running.spawn(serial(client.clone(), events / TASKS));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}
