//! The routing table: which capability handles which `(kind, type)`, and which subscribe to which event. Changed at
//! boot and at reload, completely or not at all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{OsKind, OsType};

use crate::capabilities::manifest::{Branch, CAPABILITY_NAME_BYTES_MAX, Manifest};
use crate::interface::input::CapabilityId;
use crate::routing::events::WaitingEvent;
use crate::routing::lineage::LineageRing;

/// Domains of requests that only the engine itself may handle.
const OWN_DOMAINS: [&str; 2] = ["Sys.", "Timer."];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootError {
    #[error("capability name {0:?}: give 1 to {CAPABILITY_NAME_BYTES_MAX} characters of A-Z a-z 0-9 . _ -")]
    BadName(String),
    #[error("two capabilities are named {0:?}: rename one")]
    NameTaken(String),
    #[error("{kind} {ty} is claimed by {first:?} and by {second:?}: one capability only may handle it")]
    Duplicate { kind: OsKind, ty: OsType, first: String, second: String },
    #[error(
        "{capability:?} claims {kind} {ty}: the loop itself handles requests of the domains Sys and Timer"
    )]
    Reserved { capability: String, kind: OsKind, ty: OsType },
    #[error("{found} capabilities: at most {max} may run")]
    TooMany { found: usize, max: usize },
}

#[derive(Debug, Default)]
pub(crate) struct CapabilityTable {
    handlers: BTreeMap<(OsKind, OsType), CapabilityId>,
    subscriptions: BTreeMap<OsType, Vec<CapabilityId>>,
    capabilities: BTreeMap<CapabilityId, CapabilityEntry>,
    next: u32,
}

#[derive(Debug)]
pub(crate) struct CapabilityEntry {
    pub(crate) manifest: Arc<Manifest>,
    /// Messages in its mailbox, including the one in progress.
    pub(crate) waiting: usize,
    /// Events that wait for a slot in its mailbox. The mailbox is full as long as there are some.
    pub(crate) events: VecDeque<WaitingEvent>,
    /// Requests of this capability that wait for their outcome.
    pub(crate) asked: usize,
    /// Requests that wait for an outcome from this capability.
    pub(crate) owes: usize,
    /// Messages that it may name as a cause, besides those in its mailbox.
    pub(crate) had: LineageRing,
    /// Why it takes no messages, if it is unhealthy.
    pub(crate) unhealthy: Option<String>,
    /// The capability finishes the messages it has, and then leaves.
    pub(crate) retiring: bool,
}

/// A capability as it is now, for listings.
#[derive(Clone, Debug)]
pub struct CapabilityState {
    pub manifest: Arc<Manifest>,
    /// Why it takes no messages, if it is unhealthy.
    pub unhealthy: Option<String>,
    /// The capability finishes the messages it has, and takes no others.
    pub is_leaving: bool,
    /// Messages in its mailbox, including the one in progress.
    pub in_mailbox: usize,
    /// Events that wait for a slot in its mailbox.
    pub events_waiting: usize,
    /// Requests of this capability that wait for their outcome.
    pub asked: usize,
    /// Requests that wait for an outcome from this capability.
    pub owes: usize,
}

impl CapabilityEntry {
    pub(crate) fn branch(&self, kind: OsKind, ty: &OsType) -> Option<&Branch> {
        self.manifest.inbound.iter().find(|branch| branch.kind == kind && branch.ty == *ty)
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.manifest.name
    }
}

impl CapabilityTable {
    /// `gone` lose their routes and finish their messages, `come` are numbered and added, in one step. On an error
    /// nothing changes.
    pub(crate) fn replace(
        &mut self,
        gone: &[CapabilityId],
        come: Vec<Manifest>,
        max: usize,
    ) -> Result<Vec<CapabilityId>, BootError> {
        let gone: BTreeSet<CapabilityId> = gone.iter().copied().collect();
        let stay = || self.capabilities.iter().filter(|(id, one)| !one.retiring && !gone.contains(id));
        let found = stay().count() + come.len();
        if found > max {
            return Err(BootError::TooMany { found, max });
        }
        let mut names: BTreeSet<&str> = stay().map(|(_, one)| one.name().as_ref()).collect();
        let mut claims: BTreeMap<(OsKind, &OsType), &str> = BTreeMap::new();
        for (_, one) in stay() {
            claims.extend(
                requests(&one.manifest).map(|branch| ((branch.kind, &branch.ty), one.name().as_ref())),
            );
        }
        for manifest in &come {
            check_name(&manifest.name)?;
            if !names.insert(&manifest.name) {
                return Err(BootError::NameTaken(manifest.name.to_string()));
            }
            check_requests(manifest, &mut claims)?;
        }
        let ids = (0u32..).zip(&come).map(|(at, _)| CapabilityId(self.next + at)).collect::<Vec<_>>();
        self.next += come.len() as u32;
        for id in &gone {
            self.remove_routes(*id);
        }
        for (id, manifest) in ids.iter().zip(come) {
            self.add(*id, manifest);
        }
        Ok(ids)
    }

    /// Adds one of the engine's own capabilities, which need no check.
    pub(crate) fn add_builtin(&mut self, manifest: Manifest) -> CapabilityId {
        let id = CapabilityId(self.next);
        self.next += 1;
        self.add(id, manifest);
        id
    }

    fn add(&mut self, id: CapabilityId, manifest: Manifest) {
        for branch in requests(&manifest) {
            self.handlers.insert((branch.kind, branch.ty.clone()), id);
        }
        for ty in manifest.subscribes.iter().collect::<BTreeSet<_>>() {
            self.subscriptions.entry(ty.clone()).or_default().push(id);
        }
        let capability = CapabilityEntry {
            manifest: Arc::new(manifest),
            waiting: 0,
            events: VecDeque::new(),
            asked: 0,
            owes: 0,
            had: LineageRing::default(),
            unhealthy: None,
            retiring: false,
        };
        self.capabilities.insert(id, capability);
    }

    fn remove_routes(&mut self, id: CapabilityId) {
        self.handlers.retain(|_, handler| *handler != id);
        self.subscriptions.retain(|_, listeners| {
            listeners.retain(|listener| *listener != id);
            !listeners.is_empty()
        });
        if let Some(capability) = self.capabilities.get_mut(&id) {
            capability.retiring = true;
        }
    }

    pub(crate) fn handler(&self, kind: OsKind, ty: &OsType) -> Option<CapabilityId> {
        self.handlers.get(&(kind, ty.clone())).copied()
    }

    /// The other kind of request, if a capability handles that one under this type.
    pub(crate) fn other_kind(&self, kind: OsKind, ty: &OsType) -> Option<OsKind> {
        let other = if kind == OsKind::Command { OsKind::Query } else { OsKind::Command };
        self.handler(other, ty).map(|_| other)
    }

    pub(crate) fn listeners(&self, ty: &OsType) -> &[CapabilityId] {
        self.subscriptions.get(ty).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn get(&self, id: CapabilityId) -> Option<&CapabilityEntry> {
        self.capabilities.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: CapabilityId) -> Option<&mut CapabilityEntry> {
        self.capabilities.get_mut(&id)
    }

    pub(crate) fn forget(&mut self, id: CapabilityId) {
        self.capabilities.remove(&id);
    }

    pub(crate) fn ids(&self) -> Vec<CapabilityId> {
        self.capabilities.keys().copied().collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (CapabilityId, &CapabilityEntry)> {
        self.capabilities.iter().map(|(id, capability)| (*id, capability))
    }

    pub(crate) fn name_of(&self, id: CapabilityId) -> Arc<str> {
        self.get(id).map_or_else(|| format!("removed capability {}", id.0).into(), |one| one.name().clone())
    }
}

fn requests(manifest: &Manifest) -> impl Iterator<Item = &Branch> {
    manifest.inbound.iter().filter(|branch| branch.kind.is_request())
}

fn check_name(name: &str) -> Result<(), BootError> {
    if Manifest::name_is_legal(name) {
        return Ok(());
    }
    // Cut, because the name may be of any length and is logged.
    Err(BootError::BadName(name.chars().take(CAPABILITY_NAME_BYTES_MAX).collect()))
}

fn check_requests<'a>(
    manifest: &'a Manifest,
    claims: &mut BTreeMap<(OsKind, &'a OsType), &'a str>,
) -> Result<(), BootError> {
    for branch in requests(manifest) {
        let (kind, ty) = (branch.kind, branch.ty.clone());
        if OWN_DOMAINS.iter().any(|own| ty.as_str().starts_with(own)) {
            return Err(BootError::Reserved { capability: manifest.name.to_string(), kind, ty });
        }
        if let Some(first) = claims.insert((kind, &branch.ty), &manifest.name) {
            let second = manifest.name.to_string();
            return Err(BootError::Duplicate { kind, ty, first: first.to_owned(), second });
        }
    }
    Ok(())
}
