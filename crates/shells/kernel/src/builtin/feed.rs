//! Feeds a topic of the bus to a capability: subscribes to the topic as a member of a group, and puts the events into
//! the capability's mailbox.
//!
//! Each event becomes a `Bus.Message` with the event's own id, so a capability that gets it twice can tell. The event
//! is acknowledged when the capability has processed it, and refused (NACK) when that failed, with a longer delay each
//! time. While the capability takes nothing (it is unhealthy, or its mailbox is full) the feed leaves the group and
//! gives its events back as not delivered: waiting uses up no attempts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use millrace_broker::{BrokerHandle, BusConnection, Ended, Item, Received};
use millrace_bus::{Ack, From, GiveBack, Nack, Reply, Request, Subscribe};
use millrace_model::{
    AckMode, Event, Filter, JsonText, Namespace, Offset, OsFault, OsId, OsKind, OsMessage, OsMetadata,
    OsType, Partition, Requester, TopicKey,
};
use millrace_router::{BusTopic, CapabilityId, Settled, Takes};
use tokio::sync::{oneshot, watch};

use crate::builtin::faults;
use crate::builtin::feeds::FeedLimits;
use crate::kernel_thread::inbox::KernelSender;

const TAKE_ITEMS_MAX: usize = 64;
const TAKE_BYTES_MAX: usize = 1 << 20;

/// The type of message in which an event of the bus arrives.
pub(crate) const BUS_MESSAGE: &str = "Bus.Message";

/// Request numbers: `ANY` for requests whose answer tells nothing new, `LAST_FLOW` for the FLOW request after whose
/// answer no delivery comes.
const ANY: u64 = 0;
const LAST_FLOW: u64 = 1;

/// Which capability is fed, and from which topic.
#[derive(Clone, Debug)]
pub(crate) struct FeedPlan {
    pub(crate) to: CapabilityId,
    pub(crate) capability: Arc<str>,
    pub(crate) namespace: Namespace,
    pub(crate) topic: BusTopic,
}

/// Gets the answer to the first subscription: the position of the group in each partition, or why there is none.
pub(crate) type Placed = oneshot::Sender<Result<Reply, OsFault>>;

/// Dropping it ends the feed, once the events that the capability has are settled.
#[derive(Debug)]
pub(crate) struct Feed {
    _stop: watch::Sender<()>,
}

impl Feed {
    pub(crate) fn start(
        runtime: &tokio::runtime::Handle,
        bus: BrokerHandle,
        kernel: KernelSender,
        plan: FeedPlan,
        limits: FeedLimits,
        placed: Option<Placed>,
    ) -> Feed {
        let (stop, stopped) = watch::channel(());
        runtime.spawn(Feeding { bus, kernel, plan, limits, stopped, placed }.run());
        Feed { _stop: stop }
    }
}

struct Feeding {
    bus: BrokerHandle,
    kernel: KernelSender,
    plan: FeedPlan,
    limits: FeedLimits,
    stopped: watch::Receiver<()>,
    placed: Option<Placed>,
}

/// Why a subscription ended.
enum FeedEnd {
    /// The feed was dropped, the broker or the loop has ended, or the capability is gone.
    ForGood,
    /// The capability takes nothing just now.
    Full,
    /// The bus refused, or dropped the connection.
    Refused(String),
}

impl Feeding {
    async fn run(mut self) {
        let mut pause_ms = self.limits.retry_ms;
        loop {
            let end = match self.bus.open(self.plan.namespace.clone()) {
                Ok(link) => self.serve(&link, &mut pause_ms).await.unwrap_or(FeedEnd::ForGood),
                Err(Ended) => FeedEnd::ForGood,
            };
            let FeedPlan { capability, topic, .. } = &self.plan;
            match end {
                FeedEnd::ForGood => return,
                FeedEnd::Full => {}
                FeedEnd::Refused(why) => {
                    tracing::warn!(%capability, topic = %topic.topic, group = %topic.group, "bus feed: {why}");
                }
            }
            if !self.wait(pause_ms).await {
                return;
            }
            pause_ms = pause_ms.saturating_mul(2).min(self.limits.retry_ms_max);
        }
    }

    /// Waits until the capability takes events, at least for the pause. Returns false if it never will again.
    async fn wait(&mut self, pause_ms: u64) -> bool {
        loop {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
                _ = self.stopped.changed() => return false,
            }
            let to = self.plan.to;
            match self.kernel.with_router(move |router| router.takes(to)).await {
                Ok(Takes::Now) => return true,
                Ok(Takes::NotNow) => {}
                Ok(Takes::Never) | Err(_) => return false,
            }
        }
    }

    async fn serve(&mut self, link: &BusConnection, pause_ms: &mut u64) -> Result<FeedEnd, Ended> {
        let at = FeedRequests { key: TopicKey::new(&self.plan.namespace, &self.plan.topic.topic), link };
        // Credits bound what is delivered. The window of the group alone does not: it has room again as soon as a lease
        // expires, although the mailbox still holds the event.
        at.request(Request::Flow { credits: self.limits.window.into() }).await?;
        at.request(self.subscribe(&at.key)).await?;
        let mut settling = FuturesUnordered::new();
        // The events that the capability has, with the credits spent on each.
        let mut handed = BTreeMap::<_, u64>::new();
        let mut items = Vec::new();
        let mut ending: Option<FeedEnd> = None;
        // The answer to the last FLOW has come: no more deliveries follow.
        let mut stemmed = false;
        loop {
            if settling.is_empty()
                && stemmed
                && let Some(end) = ending
            {
                return Ok(end);
            }
            tokio::select! {
                taken = link.receive(&mut items, TAKE_ITEMS_MAX, TAKE_BYTES_MAX) => {
                    let Received::Items { bytes } = taken else {
                        return Ok(FeedEnd::Refused("the connection to the bus was closed".to_owned()));
                    };
                    link.written(bytes);
                    for item in items.drain(..) {
                        match item {
                            Item::Delivery { event, .. }
                                if ending.is_some() && !handed.contains_key(&place(&event)) =>
                            {
                                at.request(self.give_back(&event)).await?;
                            }
                            Item::Delivery { event, attempts, .. } => {
                                let spent = handed.entry(place(&event)).or_default();
                                *spent += 1;
                                // A second copy: the lease expired meanwhile. The capability still has the first copy,
                                // and its result settles both.
                                if *spent == 1 {
                                    settling.push(hand_over(&self.kernel, &self.plan, event, attempts));
                                }
                            }
                            Item::Reply { request: LAST_FLOW, .. } => stemmed = true,
                            Item::Reply { reply, .. } => {
                                if let Some(why) = self.answered(reply, pause_ms) {
                                    at.stop_flow(&mut ending, FeedEnd::Refused(why)).await?;
                                }
                            }
                            Item::Notice { error, .. } => {
                                at.stop_flow(&mut ending, FeedEnd::Refused(error.to_string())).await?;
                            }
                        }
                    }
                }
                Some(Back { event, attempts, settled }) = settling.next() => {
                    let credits = handed.remove(&place(&event)).unwrap_or(1);
                    match settled {
                        Ok(Settled::Processed) => at.request(self.ack(&event)).await?,
                        Ok(Settled::Failed(fault)) => at.request(self.nack(&event, attempts, fault)).await?,
                        Ok(Settled::Unseen) => {
                            // Before the event is given back, or it would be delivered again at once.
                            at.stop_flow(&mut ending, FeedEnd::Full).await?;
                            at.request(self.give_back(&event)).await?;
                        }
                        Err(_) => {
                            outlive(link).await;
                            return Ok(FeedEnd::ForGood);
                        }
                    }
                    if ending.is_none() {
                        at.request(Request::Flow { credits }).await?;
                    }
                }
                _ = self.stopped.changed(), if !matches!(ending, Some(FeedEnd::ForGood)) => {
                    // No more deliveries from now on; events that the capability has are still settled.
                    at.stop_flow(&mut ending, FeedEnd::ForGood).await?;
                    ending = Some(FeedEnd::ForGood);
                }
            }
        }
    }

    /// Returns why there is no subscription any more, if the reply says so.
    fn answered(&mut self, reply: Reply, pause_ms: &mut u64) -> Option<String> {
        match reply {
            reply @ Reply::Subscribed { .. } => {
                *pause_ms = self.limits.retry_ms;
                self.tell_placed(Ok(reply));
                None
            }
            Reply::Refused(error) if self.placed.is_some() => {
                self.tell_placed(Err(faults::of_bus(&error)));
                Some(error.to_string())
            }
            // A late ack of an event that the bus has given to another member meanwhile, which will settle it.
            Reply::Refused(error) if error.code() == millrace_bus::ErrorCode::UnknownOffset => None,
            Reply::Refused(error) => Some(error.to_string()),
            _ => None,
        }
    }

    fn tell_placed(&mut self, placed: Result<Reply, OsFault>) {
        if let Some(waiting) = self.placed.take() {
            // An error means that the subscriber no longer waits for the answer: the feed goes on.
            let _ = waiting.send(placed);
        }
    }

    fn subscribe(&self, topic: &TopicKey) -> Request {
        Request::Subscribe(Subscribe {
            topic: topic.clone(),
            group: self.plan.topic.group.clone(),
            from: self.plan.topic.from_earliest.then_some(From::Earliest),
            reset: false,
            max_inflight: Some(self.limits.window),
            ack_mode: Some(AckMode::Individual),
            sticky: false,
            filter: Filter::default(),
        })
    }

    fn ack(&self, event: &Event) -> Request {
        Request::Ack(Ack {
            topic: event.stream.topic.clone(),
            partition: event.stream.partition,
            group: self.plan.topic.group.clone(),
            offset: event.offset,
            confirm: false,
        })
    }

    fn give_back(&self, event: &Event) -> Request {
        Request::GiveBack(GiveBack {
            topic: event.stream.topic.clone(),
            partition: event.stream.partition,
            group: self.plan.topic.group.clone(),
            offset: event.offset,
        })
    }

    fn nack(&self, event: &Event, attempts: u32, fault: OsFault) -> Request {
        let FeedLimits { retry_ms, retry_ms_max, .. } = self.limits;
        let doublings = attempts.saturating_sub(1).min(16);
        Request::Nack(Nack {
            topic: event.stream.topic.clone(),
            partition: event.stream.partition,
            group: self.plan.topic.group.clone(),
            offset: event.offset,
            reason: Some(fault.message),
            delay_ms: Some(retry_ms.saturating_mul(1 << doublings).min(retry_ms_max)),
            confirm: false,
        })
    }
}

/// Keeps the connection open until the bus ends. The loop has ended first, which means that the server stops: leases
/// that are still open when the bus stops do not count as attempts, but leases of a connection that closes earlier
/// would.
async fn outlive(link: &BusConnection) {
    let mut items = Vec::new();
    while let Received::Items { bytes } = link.receive(&mut items, TAKE_ITEMS_MAX, TAKE_BYTES_MAX).await {
        link.written(bytes);
        items.clear();
    }
}

/// The requests that a feed sends on its connection.
struct FeedRequests<'a> {
    key: TopicKey,
    link: &'a BusConnection,
}

impl FeedRequests<'_> {
    async fn request(&self, request: Request) -> Result<(), Ended> {
        self.link.send(&Requester::Trusted, &mut vec![(ANY, request)]).await
    }

    /// Asks for no more deliveries; the first reason given is kept. Events that the capability has are still settled.
    async fn stop_flow(&self, ending: &mut Option<FeedEnd>, end: FeedEnd) -> Result<(), Ended> {
        if ending.is_none() {
            *ending = Some(end);
            self.link.send(&Requester::Trusted, &mut vec![(LAST_FLOW, Request::Flow { credits: 0 })]).await?;
        }
        Ok(())
    }
}

/// An event that was handed to the capability, with the result.
struct Back {
    event: Arc<Event>,
    attempts: u32,
    settled: Result<Settled, crate::kernel_thread::inbox::KernelEnded>,
}

fn place(event: &Event) -> (Partition, Offset) {
    (event.stream.partition, event.offset)
}

fn hand_over(
    kernel: &KernelSender,
    plan: &FeedPlan,
    event: Arc<Event>,
    attempts: u32,
) -> impl Future<Output = Back> + use<> {
    let (kernel, to) = (kernel.clone(), plan.to);
    let message = message(&event, attempts);
    async move {
        let settled = match message {
            Ok(message) => kernel.bus_event(to, message).await,
            Err(fault) => Ok(Settled::Failed(fault)),
        };
        Back { event, attempts, settled }
    }
}

/// Builds `Bus.Message` {topic, partition, offset, key, headers, payload}; with `attempts` from the second delivery on.
fn message(event: &Event, attempts: u32) -> Result<OsMessage, OsFault> {
    let body = &event.body;
    let key = body.key.as_deref().map_or_else(|| Ok("null".to_owned()), faults::json)?;
    let headers = body.headers.as_ref().map_or("{}", |headers| headers.json().as_str());
    let again = if attempts > 1 { format!(",\"attempts\":{attempts}") } else { String::new() };
    let data = format!(
        "{{\"topic\":\"{}\",\"partition\":{},\"offset\":{},\"key\":{key},\"headers\":{headers}{again},\"payload\":{}}}",
        event.stream.topic.topic(),
        event.stream.partition,
        event.offset,
        body.payload.as_str()
    );
    let lineage = &body.lineage;
    let metadata = OsMetadata {
        id: OsId::of_event(&event.id),
        timestamp: event.ts,
        correlation: lineage.correlation.as_ref().map(OsId::of_event),
        causation: lineage.causation.as_ref().map(OsId::of_event),
        other: None,
    };
    let ty = OsType::new(BUS_MESSAGE).map_err(|error| OsFault::new(500, error.to_string()))?;
    Ok(OsMessage { kind: OsKind::Event, ty, data: JsonText::from_stored(data.into()), metadata })
}
