//! `--demo`: a small shop that works on this server, so that there is something to look at. Orders become payments,
//! payments become e-mails; one group is slow for a while and then catches up; some events fail and become dead letters;
//! reminders wait for their time.
//!
//! The shop is a client inside the process: it uses the broker's handle, in the namespace `default`, and only topics whose
//! names begin with `demo.`. Its use of the disk and of memory is bounded: a few events per second, topics that keep an
//! hour ([`topics`]), small windows.

mod producer;
mod shop;
mod topics;
mod worker;

use std::time::Duration;

use millrace_broker::{BrokerHandle, Ended};
use tokio::task::{JoinHandle, JoinSet};

pub(super) use self::topics::refuse_foreign_topics;
use self::worker::{Role, Worker};
use crate::failure::Failure;

/// Why a part of the shop has ended.
enum PartEnd {
    /// The server stops.
    ServerEnds,
    /// The text completes "the demo has ended: ".
    Refused(String),
}

impl From<Ended> for PartEnd {
    fn from(_: Ended) -> PartEnd {
        PartEnd::ServerEnds
    }
}

/// How long a part waits before it tries again what the server could not do just now.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The running shop, which ends when this is dropped.
pub(super) struct Demo(JoinHandle<()>);

impl Drop for Demo {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the topics, and opens the shop.
pub(super) async fn start(broker: BrokerHandle) -> Result<Demo, Failure> {
    topics::make(&broker).await?;
    tracing::info!(
        "the demo runs: topics demo.orders, demo.payments, demo.emails and demo.reminders, a slow group, events that fail, \
         events that wait"
    );
    Ok(Demo(tokio::spawn(run(broker))))
}

/// Runs until one part ends. The others then end, too: a shop without its payments is no example of anything.
async fn run(broker: BrokerHandle) {
    let mut parts = JoinSet::new();
    parts.spawn(producer::run(broker.clone()));
    for role in Role::ALL {
        parts.spawn(Worker::new(broker.clone(), role).run());
    }
    let first = parts.join_next().await;
    parts.shutdown().await;
    match first {
        Some(Ok(PartEnd::Refused(why))) => tracing::warn!("the demo has ended: {why}"),
        Some(Err(error)) => tracing::error!("the demo has ended unexpectedly: {error}"),
        Some(Ok(PartEnd::ServerEnds)) | None => {}
    }
}
