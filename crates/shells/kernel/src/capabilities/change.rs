//! Installs, replaces and removes capabilities: at boot, and while the loop runs.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millrace_model::{Now, Timestamp};
use millrace_router::{BootError, CapabilityId, CapabilityState, Input, Manifest, Router};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_local};

use crate::capabilities::capability::{Capability, CapabilityError, CapabilityOrigin};
use crate::capabilities::handlers::MessageHandlers;
use crate::capabilities::manifest::ReadyWork;
use crate::capabilities::port::{Mailbox, Port};
use crate::kernel_thread::inbox::{KernelEnded, KernelSender};
use crate::kernel_thread::local_queue::LocalQueue;

/// Why a change was refused. Nothing has been changed then.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("capability {name:?}: {error}")]
    Capability { name: String, error: CapabilityError },
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error(transparent)]
    Ended(#[from] KernelEnded),
}

/// Called for each capability whose manifest names topics of the bus. The returned value keeps the feed alive and is
/// dropped when the capability is to be removed: from then on no more events may be handed to it.
pub type BusFeed = Box<dyn Fn(CapabilityId, &Manifest, KernelSender) -> Box<dyn Any> + Send>;

/// A capability as the loop sees it, for listings.
#[derive(Clone, Debug)]
pub struct CapabilityView {
    pub origin: CapabilityOrigin,
    /// When it was installed; `None` for what the engine itself handles.
    pub since: Option<Timestamp>,
    /// How often its actor has begun again after it failed.
    pub restarts: u64,
    /// The process that works for it.
    pub process: Option<u32>,
    pub state: CapabilityState,
}

/// The actors of all capabilities, each with its mailbox.
pub(crate) struct Actors {
    running: BTreeMap<CapabilityId, RunningActor>,
    local_queue: LocalQueue,
    kernel: KernelSender,
    runtime: Handle,
    bus_feed: Option<BusFeed>,
    /// The mailboxes of actors that wait for their predecessor to finish, by the predecessor's id.
    successors: BTreeMap<CapabilityId, Rc<Mailbox>>,
    /// How long a successor waits for its predecessor; 0 = until it has finished.
    handover_ms: u64,
}

struct RunningActor {
    name: Arc<str>,
    origin: CapabilityOrigin,
    /// When it was installed.
    since: Timestamp,
    mailbox: Rc<Mailbox>,
    task: JoinHandle<()>,
    /// The actor is written by hand, such as a child process, and is waited for at its end.
    tidies_up: bool,
    /// Feeds the actor with events of the bus until it is dropped.
    feed: Option<Box<dyn Any>>,
}

impl Actors {
    pub(crate) fn new(
        local_queue: LocalQueue,
        kernel: KernelSender,
        runtime: Handle,
        bus_feed: Option<BusFeed>,
        handover_ms: u64,
    ) -> Actors {
        let (running, successors) = (BTreeMap::new(), BTreeMap::new());
        Actors { running, local_queue, kernel, runtime, bus_feed, successors, handover_ms }
    }

    /// Removes the capabilities `gone` and installs `come`, all of it or nothing: contracts are read and checked before
    /// anything starts.
    pub(crate) fn change(
        &mut self,
        router: &mut Router,
        now: Now,
        gone: &[CapabilityId],
        come: Vec<Capability>,
    ) -> Result<Vec<CapabilityId>, ChangeError> {
        let (mut manifests, mut works) = (Vec::new(), Vec::new());
        let origins: Vec<CapabilityOrigin> = come.iter().map(|capability| capability.origin).collect();
        for capability in come {
            let name = capability.name.clone();
            let (manifest, work) =
                capability.into_parts().map_err(|error| ChangeError::Capability { name, error })?;
            manifests.push(manifest);
            works.push(work);
        }
        let ids = router.replace(now, gone, manifests.clone())?;
        for id in gone {
            if let Some(actor) = self.running.get_mut(id) {
                actor.feed = None;
                actor.mailbox.leave(self.handover_ms);
            }
        }
        for (((id, manifest), work), origin) in ids.iter().zip(&manifests).zip(works).zip(origins) {
            self.start(*id, manifest, work, gone, (origin, now.wall));
        }
        Ok(ids)
    }

    /// All capabilities, those included that leave and have not finished.
    pub(crate) fn views(&self, router: &Router) -> Vec<CapabilityView> {
        let view = |(id, state): (CapabilityId, CapabilityState)| {
            let actor = self.running.get(&id);
            CapabilityView {
                origin: actor.map_or(CapabilityOrigin::BuiltIn, |actor| actor.origin),
                since: actor.map(|actor| actor.since),
                restarts: actor.map_or(0, |actor| actor.mailbox.restarts.get()),
                process: actor.and_then(|actor| actor.mailbox.process.get()),
                state,
            }
        };
        router.capabilities().map(view).collect()
    }

    /// If one of the removed actors has the same name, the new actor begins only when that one has finished: its
    /// messages come first.
    fn follow(&mut self, gone: &[CapabilityId], name: &str, mailbox: &Rc<Mailbox>) {
        let of = |id: &CapabilityId| self.running.get(id).filter(|actor| *actor.name == *name);
        let Some((before, old)) = gone.iter().find_map(|id| Some((*id, of(id)?.mailbox.clone()))) else {
            return;
        };
        mailbox.hold();
        self.successors.insert(before, mailbox.clone());
        if self.handover_ms == 0 {
            return;
        }
        let (local_queue, wait, mailbox) = (self.local_queue.clone(), self.handover_ms, mailbox.clone());
        let name: Arc<str> = name.into();
        spawn_local(async move {
            let too_long = tokio::time::timeout(Duration::from_millis(wait), mailbox.wait_until_open()).await;
            if too_long.is_err() {
                let reason = format!("it had not finished {wait} ms after a reload replaced it");
                old.clear(&local_queue, before, &name, &reason);
                local_queue.push(Input::Unhealthy { capability: before, reason });
            }
        });
    }

    fn start(
        &mut self,
        id: CapabilityId,
        manifest: &Manifest,
        work: ReadyWork,
        gone: &[CapabilityId],
        (origin, since): (CapabilityOrigin, Timestamp),
    ) {
        let mailbox = Rc::new(Mailbox::default());
        self.follow(gone, &manifest.name, &mailbox);
        let port = Port::new(
            id,
            manifest.name.clone(),
            mailbox.clone(),
            self.local_queue.clone(),
            self.kernel.clone(),
        );
        let tidies_up = matches!(work, ReadyWork::Actor(_));
        let task = match work {
            ReadyWork::Handlers { by, place } => {
                spawn_local(MessageHandlers { by, place, runtime: self.runtime.clone() }.run(port))
            }
            ReadyWork::Actor(spawn) => spawn_local(spawn(port)),
        };
        let feed = match &self.bus_feed {
            Some(feed) if !manifest.bus.is_empty() => Some(feed(id, manifest, self.kernel.clone())),
            _ => None,
        };
        let name = manifest.name.clone();
        self.running.insert(id, RunningActor { name, origin, since, mailbox, task, tidies_up, feed });
    }

    pub(crate) fn mailbox(&self, id: CapabilityId) -> Option<&Rc<Mailbox>> {
        self.running.get(&id).map(|actor| &actor.mailbox)
    }

    /// The mailbox of a removed capability is empty and stays empty: its actor ends by itself, and then its successor
    /// begins.
    pub(crate) fn retired(&mut self, id: CapabilityId) {
        let successor = self.successors.remove(&id);
        let Some(RunningActor { mailbox, task, tidies_up, .. }) = self.running.remove(&id) else { return };
        mailbox.close();
        let Some(successor) = successor else { return };
        spawn_local(async move {
            // The retired actor may itself have been waiting for a predecessor.
            mailbox.wait_until_open().await;
            if tidies_up {
                // A child process that does not end is killed, so this returns. An actor that panicked has ended, too.
                let _ = task.await;
            } else {
                // Nobody needs the result of a function that still runs: the engine has already answered for it.
                task.abort();
            }
            successor.open();
        });
    }

    /// Closes every mailbox, at the end of the loop. Handlers are aborted, because nobody waits for their answers any
    /// more. Returns the actors written by hand, so that the caller can wait until they have cleaned up.
    pub(crate) fn stop_all(&mut self) -> Vec<JoinHandle<()>> {
        let mut tidy = Vec::new();
        for actor in std::mem::take(&mut self.running).into_values() {
            actor.mailbox.close();
            if actor.tidies_up {
                tidy.push(actor.task);
            } else {
                actor.task.abort();
            }
        }
        tidy
    }
}
