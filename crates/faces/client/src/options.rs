//! Settings of a client and of a subscription: plain values.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use millrace_model::{AckMode, Filter, Group, Namespace, TopicName};
use millrace_wire::{StartFrom, Subscribe};

use crate::error::ClientError;
use crate::servers::FollowLeader;

/// Settings of a client. Every value is usable: start with [`ClientOptions::new`] and change what matters.
#[derive(Clone)]
pub struct ClientOptions {
    /// `ws://HOST:PORT/`, `wss://HOST:PORT/`, or any other form [`Endpoint::parse`](crate::Endpoint::parse) takes.
    /// Several URLs, of servers that share a store, are tried in this order.
    pub urls: Vec<String>,
    /// Whether to follow a server that says that another one leads, if that one is not among `urls`.
    pub follow_leader: FollowLeader,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<String>,
    /// For `wss://`: a PEM file with the authorities to trust. Without it, those that the system trusts.
    pub tls_ca: Option<PathBuf>,
    /// For `wss://`: authenticates this client, instead of a token, to a server that asks for client certificates.
    pub client_certificate: Option<ClientCertificate>,
    pub namespace: Namespace,
    /// Connect again when the connection is lost. If false, the client ends with its connection.
    pub reconnect: bool,
    /// Send unconfirmed publishes again after a reconnect. The client gives each event an id for this, so that the
    /// server stores it once. If false, unconfirmed publishes fail with [`ClientError::Disconnected`].
    pub resend: bool,
    /// Most publishes that are not confirmed yet; at this number the next one waits.
    pub publishes_inflight_max: usize,
    /// Most bytes of publishes that are not confirmed yet; a larger event is sent alone.
    pub publish_bytes_inflight_max: usize,
    /// Largest frame: a larger publish is refused here. The server closes connections that send more than it allows.
    pub frame_bytes_max: usize,
    /// Most requests that wait for the background task; at this number the next one waits.
    pub requests_max: usize,
    /// The delay before the first attempt to reconnect is twice this; then the delay doubles up to `backoff_max`. With
    /// several servers the others are tried first, without a delay, and the delay comes when all were tried.
    pub backoff_start: Duration,
    pub backoff_max: Duration,
    /// After trying to reconnect for this long the client ends with [`ClientError::Unreachable`]; `None` = never.
    pub give_up_after: Option<Duration>,
    /// How long one attempt to connect may take, the server's greeting included: for a server that hangs, the kernel
    /// still accepts connections.
    pub connect_timeout: Duration,
    /// A connection on which nothing arrives for this long, pongs included, is given up. After a third of this time
    /// without a frame the client sends a PING; at the same interval it requests subscriptions again that the server
    /// refused for a passing reason.
    pub idle_timeout: Duration,
}

impl ClientOptions {
    /// Takes one URL, or several separated by commas.
    pub fn new(url: impl Into<String>) -> ClientOptions {
        ClientOptions {
            urls: vec![url.into()],
            follow_leader: FollowLeader::default(),
            token: None,
            tls_ca: None,
            client_certificate: None,
            namespace: Namespace::default(),
            reconnect: true,
            resend: true,
            publishes_inflight_max: 1024,
            publish_bytes_inflight_max: 64 << 20,
            frame_bytes_max: 1 << 20,
            requests_max: 1024,
            backoff_start: Duration::from_millis(500),
            backoff_max: Duration::from_secs(10),
            give_up_after: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// PEM files: a client certificate with its chain, and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Leaves out the token.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("urls", &self.urls)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// Settings of a subscription.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    pub topic: TopicName,
    pub group: Group,
    /// Where a group without a commit begins; `None` = at the tail.
    pub from: Option<StartFrom>,
    /// Seek to `from` although the group has a commit. Done once, not at every reconnect.
    pub reset: bool,
    /// Most events that are delivered and not acknowledged; at this number the server waits.
    pub max_inflight: u32,
    /// Which offsets an ack completes; `None` = the topic's or the server's setting.
    pub ack_mode: Option<AckMode>,
    /// Events of one key go to one member of the group, one at a time.
    pub sticky: bool,
    pub filter: Filter,
    /// Most events that the server puts into one frame, up to 1,000; `None` = one. Saves work on both sides when many
    /// events wait.
    pub batch_max: Option<u32>,
}

impl SubscribeOptions {
    pub fn new(topic: &str, group: &str) -> Result<SubscribeOptions, ClientError> {
        Ok(SubscribeOptions {
            topic: TopicName::new(topic)?,
            group: Group::new(group)?,
            from: None,
            reset: false,
            max_inflight: 32,
            ack_mode: None,
            sticky: false,
            filter: Filter::default(),
            batch_max: None,
        })
    }

    pub fn from(self, from: StartFrom) -> SubscribeOptions {
        SubscribeOptions { from: Some(from), ..self }
    }

    pub(crate) fn request(&self) -> Subscribe {
        Subscribe {
            topic: self.topic.clone(),
            group: self.group.clone(),
            from: self.from,
            reset: self.reset,
            max_inflight: Some(self.max_inflight),
            ack_mode: self.ack_mode,
            sticky: self.sticky,
            filter: self.filter.clone(),
            batch_max: self.batch_max,
        }
    }
}
