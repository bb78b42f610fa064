//! Capabilities come and go: at boot, and while the loop runs.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;

use millrace_model::Now;
use millrace_router::{BootError, CapabilityId, Manifest, Router};
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
}

struct Actor {
    mailbox: Rc<Mailbox>,
    task: JoinHandle<()>,
    /// Written by hand, such as a child process.
    tidies_up: bool,
    /// Feeds it events of the bus as long as this is not dropped.
    feed: Option<Box<dyn Any>>,
}

impl Actors {
    pub(crate) fn new(ear: Ear, link: LoopLink, runtime: Handle, bus_feed: Option<BusFeed>) -> Actors {
        Actors { running: BTreeMap::new(), ear, link, runtime, bus_feed }
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
            }
        }
        for ((id, manifest), work) in ids.iter().zip(&manifests).zip(works) {
            self.start(*id, manifest, work);
        }
        Ok(ids)
    }

    fn start(&mut self, id: CapabilityId, manifest: &Manifest, work: Ready) {
        let mailbox = Rc::new(Mailbox::default());
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
        self.running.insert(id, Actor { mailbox, task, tidies_up, feed });
    }

    pub(crate) fn mailbox(&self, id: CapabilityId) -> Option<&Rc<Mailbox>> {
        self.running.get(&id).map(|actor| &actor.mailbox)
    }

    /// Its mailbox is empty and stays so: the actor ends by itself.
    pub(crate) fn retired(&mut self, id: CapabilityId) {
        if let Some(actor) = self.running.remove(&id) {
            actor.mailbox.close();
        }
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
