//! All feeds of topics to capabilities. A feed named in a manifest lives as long as its capability runs; a feed made by
//! `Bus.Subscribe` until the capability is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_broker::BrokerHandle;
use millrace_bus::Reply;
use millrace_model::{Group, Namespace, OsFault, TopicKey};
use millrace_router::{BusTopic, CapabilityId, Manifest};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::builtin::feed::{Feed, FeedPlan, Placed};
use crate::capabilities::change::BusFeed;
use crate::clients::audit_hook::{AuditEvent, AuditHook};
use crate::kernel_thread::inbox::KernelSender;

/// Bounds on feeds.
#[derive(Clone, Debug)]
pub struct FeedLimits {
    /// Events of a topic in the capability's mailbox, or on their way to it, at a time. The rest waits in the log.
    /// Their leases run while they wait, and a capability handles one message at a time: the larger the window, the
    /// sooner a slow capability gets events twice. 2 = one in progress and one ready, so that it does not wait for the
    /// bus.
    pub window: u32,
    /// Delay before an event that could not be processed is delivered again, doubled with each attempt; also before a
    /// refused feed tries again.
    pub retry_ms: u64,
    /// The upper bound of the doubled delay.
    pub retry_ms_max: u64,
    /// Topics that one capability may subscribe to by Bus.Subscribe. More are refused with 429.
    pub topics_max: usize,
}

impl Default for FeedLimits {
    fn default() -> Self {
        FeedLimits { window: 2, retry_ms: 1000, retry_ms_max: 30_000, topics_max: 64 }
    }
}

/// All feeds of events of the bus.
pub struct Feeds {
    bus: BrokerHandle,
    runtime: tokio::runtime::Handle,
    limits: FeedLimits,
    audit_hook: Option<AuditHook>,
    /// Feeds made by `Bus.Subscribe`. Feeds of manifests are kept with their capability (`change.rs`).
    asked: Mutex<HostRequest>,
}

impl std::fmt::Debug for Feeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feeds").field("asked", &self.asked).finish_non_exhaustive()
    }
}

type HostRequest = BTreeMap<CapabilityId, Vec<(TopicKey, Group, Feed)>>;

impl Feeds {
    /// Feeds run on `runtime`. `audit_hook` is told what the bus answers to commands.
    pub fn new(
        bus: BrokerHandle,
        runtime: tokio::runtime::Handle,
        limits: FeedLimits,
        audit_hook: Option<AuditHook>,
    ) -> Arc<Feeds> {
        Arc::new(Feeds { bus, runtime, limits, audit_hook, asked: Mutex::default() })
    }

    /// Starts the feeds that manifests ask for; given to the loop.
    pub fn bus_feed(self: &Arc<Feeds>) -> BusFeed {
        let feeds = self.clone();
        Box::new(move |to, manifest, kernel| Box::new(feeds.of_manifest(to, manifest, &kernel)))
    }

    fn of_manifest(&self, to: CapabilityId, manifest: &Manifest, kernel: &KernelSender) -> Vec<Feed> {
        let start = |topic: &BusTopic| {
            let plan = FeedPlan {
                to,
                capability: manifest.name.clone(),
                namespace: Namespace::default(),
                topic: topic.clone(),
            };
            self.start(kernel, plan, None)
        };
        manifest.bus.iter().map(start).collect()
    }

    /// Starts a feed and returns the answer of the bus, which comes when the group has its position.
    pub(super) async fn subscribe(&self, kernel: &KernelSender, plan: FeedPlan) -> Result<Reply, OsFault> {
        let key = TopicKey::new(&plan.namespace, &plan.topic.topic);
        let (to, group) = (plan.to, plan.topic.group.clone());
        let (placed, is_placed) = oneshot::channel();
        let live =
            kernel.with_router(|router| router.directory().map(|(id, _)| id).collect::<BTreeSet<_>>()).await;
        let live = live.map_err(|ended| OsFault::new(503, ended.to_string()))?;
        {
            let mut asked = self.asked.lock();
            asked.retain(|id, _| live.contains(id));
            let feeds = asked.entry(to).or_default();
            // The same subscription again replaces the old one: a capability that was restarted cannot know what it
            // subscribed to before.
            feeds.retain(|(topic, of, _)| (topic, of) != (&key, &group));
            let max = self.limits.topics_max;
            if feeds.len() >= max {
                return Err(OsFault::new(429, format!("The limit of {max} subscriptions is reached")));
            }
            let feed = self.start(kernel, plan, Some(placed));
            feeds.push((key.clone(), group.clone(), feed));
        }
        let answer = is_placed.await.unwrap_or_else(|_| Err(OsFault::new(503, "the bus has ended")));
        if answer.is_err() {
            let mut asked = self.asked.lock();
            asked.entry(to).or_default().retain(|(topic, of, _)| (topic, of) != (&key, &group));
        }
        answer
    }

    fn start(&self, kernel: &KernelSender, plan: FeedPlan, placed: Option<Placed>) -> Feed {
        Feed::start(&self.runtime, self.bus.clone(), kernel.clone(), plan, self.limits.clone(), placed)
    }

    pub(super) fn is_watched(&self) -> bool {
        self.audit_hook.is_some()
    }

    pub(super) fn seen(&self, seen: &AuditEvent<'_>) {
        if let Some(hook) = &self.audit_hook {
            hook(seen);
        }
    }

    pub(super) fn bus(&self) -> &BrokerHandle {
        &self.bus
    }
}
