//! Rust client of the Millrace wire protocol.
//!
//! A [`Client`] is a handle to a background task that owns one connection. A publish resolves when the server has
//! confirmed it; many may be in flight at once. When the connection is lost, the task connects again, subscribes again
//! and sends unconfirmed publishes again, each event with the same id, so that it is stored once.
//!
//! Several URLs may be given, of servers that share a store: the client uses the one that leads. Which leaders it follows
//! is written at [`ServerList::leader`].
//!
//! Every queue has a bound named in [`ClientOptions`]; when a queue is full, the caller waits.
//!
//! An [`OsClient`] talks to the CQRS loop over the server's Unix socket: requests with one outcome each, and events.
//!
//! This crate does not speak the HTTP interface, and does not send a publish again that the server refused: that is the
//! caller's decision.
//!
//! ```no_run
//! use millrace_client::{Client, ClientOptions, NewMessage, SubscribeOptions};
//!
//! # async fn example() -> Result<(), millrace_client::ClientError> {
//! let client = Client::connect(ClientOptions::new("ws://127.0.0.1:7070/")).await?;
//!
//! let mut orders = client.subscribe(SubscribeOptions::new("orders", "billing")?).await?;
//! let confirmed = client.publish("orders", NewMessage::json(&["duck", "pond"])?.key("duck-1")).await?;
//! println!("on disk: {:?}", confirmed.place);
//!
//! let delivery = orders.next().await?;
//! println!("{}", delivery.payload().as_str());
//! delivery.ack().await?;
//! client.close().await;
//! # Ok(())
//! # }
//! ```

mod backoff;
mod client;
mod command;
mod delivery;
mod dial;
mod endpoint;
mod error;
mod ledger;
mod mailbox;
mod message;
mod message_queue;
mod options;
mod os;
mod outage;
mod pending;
mod receipt;
mod request_queue;
mod round;
mod servers;
mod session;
mod subscription;
mod subscriptions;
mod task;
mod tls;

pub use client::Client;
pub use delivery::Delivery;
pub use endpoint::Endpoint;
pub use error::ClientError;
pub use message::NewMessage;
pub use options::{ClientCertificate, ClientOptions, SubscribeOptions};
pub use os::{OsClient, OsClientError, OsOptions, OsRequest, check_socket, default_socket};
pub use receipt::{BatchReceipt, Receipt};
pub use round::ServerRound;
pub use servers::{FollowLeader, LeaderRefused, ServerList};
pub use subscription::Subscription;
pub use tls::{Identity, authorities, client_identity, crypto_provider, in_plain_words};

// Types that a caller needs to read an answer, so that one dependency is enough.
pub use millrace_model::{
    AckMode, DeliverAt, Durability, EventId, Filter, Group, JsonText, Offset, OsFault, OsId, OsKind,
    OsMessage, OsMetadata, OsType, Partition, Timestamp, TopicName,
};
pub use millrace_wire::{
    ErrorCode, FrameError, Message, Position, Published, PublishedBatch, PublishedPlace, StartFrom,
};
