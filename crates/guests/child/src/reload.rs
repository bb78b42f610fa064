//! The child processes of a configuration, and the change to another configuration while the loop runs.

use std::collections::BTreeSet;

use millrace_kernel::{Capability, ChangeError, KernelEnded, KernelHandle};
use millrace_router::CapabilityId;

use crate::settings::{ChildLimits, ChildSettings};
use crate::stamp::Stamp;
use crate::start::{Child, ChildError};

/// Why a configuration was refused. Nothing has been changed then.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("two capabilities are named {0:?}: rename one")]
    Twice(String),
}

impl From<KernelEnded> for ReloadError {
    fn from(ended: KernelEnded) -> ReloadError {
        ReloadError::Change(ended.into())
    }
}

/// The names of the capabilities that a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub added: Vec<String>,
    /// Because of other settings or an edited file, or because the child was unhealthy.
    pub replaced: Vec<String>,
    pub removed: Vec<String>,
}

/// The children that run.
#[derive(Debug)]
pub struct Children {
    handle: KernelHandle,
    limits: ChildLimits,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    settings: ChildSettings,
    stamp: Stamp,
    id: CapabilityId,
}

impl Children {
    /// Starts no children yet: see [`Children::become_these`].
    pub fn new(handle: KernelHandle, limits: ChildLimits) -> Children {
        Children { handle, limits, running: Vec::new() }
    }

    /// Starts the children that are new or have changed, then installs all of them in one step. A child that is removed
    /// finishes the messages it has; new requests go to its successor. On an error nothing has changed.
    pub async fn become_these(&mut self, wanted: Vec<ChildSettings>) -> Result<Changed, ReloadError> {
        let mut names = BTreeSet::new();
        if let Some(twice) = wanted.iter().find(|settings| !names.insert(settings.name.clone())) {
            return Err(ReloadError::Twice(twice.name.clone()));
        }
        let stamps: Vec<Stamp> = wanted.iter().map(Stamp::of).collect();
        let mut changed = Changed::default();
        let mut stay = Vec::new();
        let mut start = Vec::new();
        for (settings, stamp) in wanted.into_iter().zip(stamps) {
            let old = self.running.iter().find(|running| running.settings.name == settings.name);
            match old {
                Some(old)
                    if old.settings == settings && old.stamp == stamp && self.is_well(old.id).await? =>
                {
                    stay.push(old.id);
                }
                Some(_) => {
                    changed.replaced.push(settings.name.clone());
                    start.push((settings, stamp));
                }
                None => {
                    changed.added.push(settings.name.clone());
                    start.push((settings, stamp));
                }
            }
        }
        let gone: Vec<CapabilityId> =
            self.running.iter().map(|running| running.id).filter(|id| !stay.contains(id)).collect();
        changed.removed = self
            .running
            .iter()
            .filter(|running| {
                gone.contains(&running.id) && !changed.replaced.contains(&running.settings.name)
            })
            .map(|running| running.settings.name.clone())
            .collect();
        let come = self.start_all(&start).await?;
        let ids = self.handle.change(gone.clone(), come).await?;
        self.running.retain(|running| !gone.contains(&running.id));
        let new = start.into_iter().zip(ids).map(|((settings, stamp), id)| Running { settings, stamp, id });
        self.running.extend(new);
        Ok(changed)
    }

    async fn is_well(&self, id: CapabilityId) -> Result<bool, KernelEnded> {
        self.handle.sender().with_router(move |router| !router.is_unhealthy(id)).await
    }

    /// Starts all at once: each of them may take a while to send its manifest.
    async fn start_all(&self, start: &[(ChildSettings, Stamp)]) -> Result<Vec<Capability>, ChildError> {
        let starting = start.iter().map(|(settings, _)| Child::start(settings.clone(), self.limits.clone()));
        let started = futures_util::future::try_join_all(starting).await?;
        Ok(started.into_iter().map(Child::into_capability).collect())
    }
}
