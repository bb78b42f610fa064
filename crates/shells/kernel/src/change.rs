//! Capabilities come and go: at boot, and while the loop runs.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millrace_model::Now;
use millrace_router::{BootError, CapabilityId, Input, Manifest, Router};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_local};

use crate::capability::{Capability, CapabilityError};
use crate::ear::Ear;
use crate::handlers::Handlers;
use crate::inbox::{Ended, LoopLink};
use crate::manifest::Ready;
use crate::port::{Mailbox, Port};

/// Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("capability {name:?}: {error}")]
    Capability { name: String, error: CapabilityError },
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Told of each capability that wants topics of the bus. What it returns is dropped when the capability is to go: no
/// more events are to be handed to it then.
pub type BusFeed = Box<dyn Fn(CapabilityId, &Manifest, LoopLink) -> Box<dyn Any> + Send>;

/// Everything that has a mailbox.
pub(crate) struct Actors {
    running: BTreeMap<CapabilityId, Actor>,
    ear: Ear,
    link: LoopLink,
    runtime: Handle,
    bus_feed: Option<BusFeed>,
    /// The mailbox of the actor that takes over from one that has not finished yet, by the id of the latter.
    successors: BTreeMap<CapabilityId, Rc<Mailbox>>,
    /// How long a successor waits for its predecessor; 0 = as long as it takes.
    handover_ms: u64,
}

struct Actor {
    name: Arc<str>,
    mailbox: Rc<Mailbox>,
    task: JoinHandle<()>,
    /// Written by hand, such as a child process.
    tidies_up: bool,
    /// Feeds it events of the bus as long as this is not dropped.
    feed: Option<Box<dyn Any>>,
}

impl Actors {
    pub(crate) fn new(
        ear: Ear,
        link: LoopLink,
        runtime: Handle,
        bus_feed: Option<BusFeed>,
        handover_ms: u64,
    ) -> Actors {
        let (running, successors) = (BTreeMap::new(), BTreeMap::new());
        Actors { running, ear, link, runtime, bus_feed, successors, handover_ms }
    }

    /// All of it or nothing of it: contracts are read and checked before anything starts.
    pub(crate) fn change(
        &mut self,
        router: &mut Router,
        now: Now,
        gone: &[CapabilityId],
        come: Vec<Capability>,
    ) -> Result<Vec<CapabilityId>, ChangeError> {
        let (mut manifests, mut works) = (Vec::new(), Vec::new());
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
        for ((id, manifest), work) in ids.iter().zip(&manifests).zip(works) {
            self.start(*id, manifest, work, gone);
        }
        Ok(ids)
    }

    /// If an actor that ends has the same name, its messages come before those of the new actor: the new one begins when
    /// the old one has finished.
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
        let (ear, wait, mailbox) = (self.ear.clone(), self.handover_ms, mailbox.clone());
        let name: Arc<str> = name.into();
        spawn_local(async move {
            let too_long = tokio::time::timeout(Duration::from_millis(wait), mailbox.is_open()).await;
            if too_long.is_err() {
                let reason = format!("it had not finished {wait} ms after a reload replaced it");
                old.clear(&ear, before, &name, &reason);
                ear.tell(Input::Unhealthy { capability: before, reason });
            }
        });
    }

    fn start(&mut self, id: CapabilityId, manifest: &Manifest, work: Ready, gone: &[CapabilityId]) {
        let mailbox = Rc::new(Mailbox::default());
        self.follow(gone, &manifest.name, &mailbox);
        let port = Port::new(id, manifest.name.clone(), mailbox.clone(), self.ear.clone(), self.link.clone());
        let tidies_up = matches!(work, Ready::Actor(_));
        let task = match work {
            Ready::Handlers { by, place } => {
                spawn_local(Handlers { by, place, runtime: self.runtime.clone() }.run(port))
            }
            Ready::Actor(spawn) => spawn_local(spawn(port)),
        };
        let feed = match &self.bus_feed {
            Some(feed) if !manifest.bus.is_empty() => Some(feed(id, manifest, self.link.clone())),
            _ => None,
        };
        let name = manifest.name.clone();
        self.running.insert(id, Actor { name, mailbox, task, tidies_up, feed });
    }

    pub(crate) fn mailbox(&self, id: CapabilityId) -> Option<&Rc<Mailbox>> {
        self.running.get(&id).map(|actor| &actor.mailbox)
    }

    /// Its mailbox is empty and stays so: the actor ends by itself, and then its successor begins.
    pub(crate) fn retired(&mut self, id: CapabilityId) {
        let successor = self.successors.remove(&id);
        let Some(Actor { mailbox, task, tidies_up, .. }) = self.running.remove(&id) else { return };
        mailbox.close();
        let Some(successor) = successor else { return };
        spawn_local(async move {
            // The retired actor may itself have been waiting for a predecessor.
            mailbox.is_open().await;
            if tidies_up {
                // A child process is killed if it does not end; one that panicked has ended, too.
                let _ = task.await;
            } else {
                // A function that still runs has nobody to answer to: the engine has answered for it.
                task.abort();
            }
            successor.open();
        });
    }

    /// At the end of the loop: closes every mailbox. Handlers are cut off, nobody waits for their answers any more;
    /// actors that have something to tidy up are handed out to be waited for.
    pub(crate) fn end(&mut self) -> Vec<JoinHandle<()>> {
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
