//! Turns a [`Capability`], as its author wrote it, into the [`Manifest`] that the engine checks messages against; and
//! the other way round for an actor that brings its manifest.

use std::collections::BTreeMap;

use millrace_model::{OsKind, OsType};
use millrace_router::{Branch, Manifest, Schema, SchemaError};

use crate::capabilities::capability::{
    ActorFuture, Capability, CapabilityError, CapabilityWork, Declared, HandlerPlace, MessageHandler, Spawn,
};
use crate::capabilities::port::Port;

/// The work of a capability whose contract has been read. The engine has the manifest, the shell has this.
pub(crate) enum ReadyWork {
    Handlers { by: BTreeMap<(OsKind, OsType), MessageHandler>, place: HandlerPlace },
    Actor(Spawn),
}

impl Capability {
    /// A capability whose contract is already a manifest, such as the one that a child process sends, with an actor
    /// that does its work: see [`Capability::actor`].
    pub fn of_manifest(
        manifest: Manifest,
        spawn: impl FnOnce(Port) -> ActorFuture + Send + 'static,
    ) -> Capability {
        let mut capability = Capability::actor(&manifest.name, &manifest.description, spawn);
        capability.inbound = manifest.inbound.iter().map(declared).collect();
        capability.outbound = manifest.outbound.map(|outbound| outbound.iter().map(declared).collect());
        capability.subscribes = manifest.subscribes.iter().map(ToString::to_string).collect();
        capability.bus = manifest.bus;
        capability
    }

    pub(crate) fn into_parts(mut self) -> Result<(Manifest, ReadyWork), CapabilityError> {
        if !self.mistakes.is_empty() {
            return Err(self.mistakes.swap_remove(0));
        }
        let manifest = Manifest {
            name: self.name.into(),
            description: self.description,
            inbound: branches(self.inbound)?,
            outbound: self.outbound.map(branches).transpose()?,
            subscribes: types(&self.subscribes)?,
            bus: self.bus,
        };
        let work = match self.work {
            CapabilityWork::Actor(spawn) => ReadyWork::Actor(spawn),
            CapabilityWork::Handlers { by, place } => {
                let by = by.into_iter().map(|((kind, ty), handler)| Ok(((kind, OsType::new(&ty)?), handler)));
                ReadyWork::Handlers { by: by.collect::<Result<_, CapabilityError>>()?, place }
            }
        };
        Ok((manifest, work))
    }
}

fn branches(declared: Vec<Declared>) -> Result<Vec<Branch>, CapabilityError> {
    declared.into_iter().map(branch).collect()
}

fn branch(declared: Declared) -> Result<Branch, CapabilityError> {
    let Declared { kind, ty, description, data, checked, output } = declared;
    let wrong = |error: SchemaError| CapabilityError::Schema { ty: ty.clone(), reason: error.to_string() };
    let data = match data {
        None => Schema::any(),
        Some(document) if !checked => Schema::shown(document),
        Some(document) => Schema::new(document).map_err(wrong)?,
    };
    let output = output.map_or_else(Schema::any, Schema::shown);
    Ok(Branch { kind, ty: OsType::new(&ty)?, description, data, output })
}

fn declared(branch: &Branch) -> Declared {
    Declared {
        kind: branch.kind,
        ty: branch.ty.to_string(),
        description: branch.description.clone(),
        data: Some(branch.data.document().clone()),
        checked: true,
        output: Some(branch.output.document().clone()),
    }
}

/// Parses type names; a name given twice counts once.
fn types(names: &[String]) -> Result<Vec<OsType>, CapabilityError> {
    let types: Result<std::collections::BTreeSet<OsType>, _> =
        names.iter().map(|name| OsType::new(name)).collect();
    Ok(types?.into_iter().collect())
}
