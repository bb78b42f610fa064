//! The handlers of a module's operations: which handler answers which operation.

use std::fmt;
use std::sync::Arc;

use crate::codec::schema::Signature;
use crate::handler::EffectHandler;
use crate::module::ModuleInfo;
use crate::table::EffectOp;

/// Names operations of a module: an effect id, and the operation by name or id, and the signature hash if a generic
/// operation has several instantiations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpKey {
    effect_id: String,
    op: OpName,
    signature: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OpName {
    Name(String),
    Id(u32),
}

/// Why a handler was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("Unknown effect op for {key}; the module has {known}")]
    Unknown { key: OpKey, known: String },
    #[error("Ambiguous handler key {key}: it fits the signatures {signatures}; add one of them")]
    Ambiguous { key: OpKey, signatures: String },
    #[error("no operation's label ends with {suffix}; the module has {known}")]
    UnknownSuffix { suffix: String, known: String },
}

/// How many operations an error lists at most.
const LISTED_MAX: usize = 20;

impl OpKey {
    pub fn named(effect_id: impl Into<String>, name: impl Into<String>) -> OpKey {
        OpKey { effect_id: effect_id.into(), op: OpName::Name(name.into()), signature: None }
    }

    /// Names an operation by its declaration index inside the effect.
    pub fn id(effect_id: impl Into<String>, op_id: u32) -> OpKey {
        OpKey { effect_id: effect_id.into(), op: OpName::Id(op_id), signature: None }
    }

    /// Restricts the key to the instantiation with this signature hash.
    pub fn signature(mut self, hash: u32) -> OpKey {
        self.signature = Some(hash);
        self
    }

    fn fits(&self, op: &EffectOp) -> bool {
        let named = match &self.op {
            OpName::Name(name) => op.name() == name,
            OpName::Id(id) => op.op_id == *id,
        };
        named && *op.effect_id == *self.effect_id && self.signature.is_none_or(|hash| hash == op.signature)
    }
}

impl fmt::Display for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.op {
            OpName::Name(name) => write!(f, "{}::{name}", self.effect_id)?,
            OpName::Id(id) => write!(f, "{}::{id}", self.effect_id)?,
        }
        self.signature.map_or(Ok(()), |hash| write!(f, "::0x{hash:08x}"))
    }
}

/// The handlers for an instance of a module. An operation without a handler fails the run that asks for it. Registering
/// none is no error, because modules list operations that they never use.
#[derive(Clone)]
pub struct Handlers {
    pub(crate) module: Arc<ModuleInfo>,
    pub(crate) slots: Vec<HandlerSlot>,
}

#[derive(Clone, Default)]
pub(crate) struct HandlerSlot {
    pub(crate) handler: Option<Arc<dyn EffectHandler>>,
    pub(crate) declared: Option<Arc<Signature>>,
}

impl Handlers {
    pub(crate) fn new(module: Arc<ModuleInfo>) -> Handlers {
        let slots = vec![HandlerSlot::default(); module.table.len()];
        Handlers { module, slots }
    }

    /// The module's operations.
    pub fn operations(&self) -> &[EffectOp] {
        &self.module.table
    }

    /// Registers the handler of one operation, replacing the one it had.
    ///
    /// # Errors
    ///
    /// [`RegisterError::Unknown`] if the module has no such operation, [`RegisterError::Ambiguous`] if the key fits
    /// several.
    pub fn on(&mut self, key: &OpKey, handler: impl EffectHandler + 'static) -> Result<(), RegisterError> {
        let index = self.find(key)?;
        self.set(index, Arc::new(handler));
        Ok(())
    }

    /// Declares the types of an operation. Its arguments are checked before the handler is called, its replies before
    /// the module is resumed. Modules of generation A turn values of the wrong type into zero, so without a declaration
    /// a mistake goes unnoticed; modules of generation B bring their own.
    ///
    /// # Errors
    ///
    /// As [`Handlers::on`].
    pub fn declare(&mut self, key: &OpKey, types: Signature) -> Result<(), RegisterError> {
        let index = self.find(key)?;
        self.slots[index as usize].declared = Some(Arc::new(types));
        Ok(())
    }

    /// Registers one handler for every operation whose label ends with the suffix, such as `Ask::number`. The suffix
    /// begins at a part of the label.
    ///
    /// # Errors
    ///
    /// [`RegisterError::UnknownSuffix`] if no label ends with the suffix.
    pub fn on_suffix(&mut self, suffix: &str, handler: &Arc<dyn EffectHandler>) -> Result<(), RegisterError> {
        let fits = |op: &&EffectOp| ends_with(&op.path(), suffix);
        let indexes: Vec<u32> = self.module.table.iter().filter(fits).map(|op| op.index).collect();
        if indexes.is_empty() {
            return Err(RegisterError::UnknownSuffix { suffix: suffix.to_owned(), known: self.known() });
        }
        for index in indexes {
            self.set(index, handler.clone());
        }
        Ok(())
    }

    /// Offers handlers to all operations that have none yet.
    pub fn offer(&mut self, mut pick: impl FnMut(&EffectOp) -> Option<Arc<dyn EffectHandler>>) {
        for (slot, op) in self.slots.iter_mut().zip(&self.module.table) {
            if slot.handler.is_none() {
                slot.handler = pick(op);
            }
        }
    }

    /// Registers the handler of the operation at this position of the table; nothing happens if there is none.
    pub fn set(&mut self, index: u32, handler: Arc<dyn EffectHandler>) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.handler = Some(handler);
        }
    }

    /// Replaces every handler by the result of `wrap`, for recorders and the like.
    pub fn wrap(
        &mut self,
        mut wrap: impl FnMut(&EffectOp, Option<Arc<dyn EffectHandler>>) -> Option<Arc<dyn EffectHandler>>,
    ) {
        for (slot, op) in self.slots.iter_mut().zip(&self.module.table) {
            slot.handler = wrap(op, slot.handler.take());
        }
    }

    fn find(&self, key: &OpKey) -> Result<u32, RegisterError> {
        let fitting: Vec<&EffectOp> = self.module.table.iter().filter(|op| key.fits(op)).collect();
        match fitting.as_slice() {
            [op] => Ok(op.index),
            [] => Err(RegisterError::Unknown { key: key.clone(), known: self.known() }),
            several => {
                let signatures: Vec<String> =
                    several.iter().map(|op| format!("0x{:08x}", op.signature)).collect();
                Err(RegisterError::Ambiguous { key: key.clone(), signatures: signatures.join(", ") })
            }
        }
    }

    fn known(&self) -> String {
        let table = &self.module.table;
        let name = |op: &EffectOp| format!("{}::{}", op.effect_id, op.name());
        let mut names: Vec<String> = table.iter().take(LISTED_MAX).map(name).collect();
        match table.len() {
            0 => "no operations".to_owned(),
            len => {
                if len > LISTED_MAX {
                    names.push(format!("{} more", len - LISTED_MAX));
                }
                names.join(", ")
            }
        }
    }
}

fn ends_with(path: &str, suffix: &str) -> bool {
    path.strip_suffix(suffix).is_some_and(|head| head.is_empty() || head.ends_with("::"))
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handled = self.slots.iter().filter(|slot| slot.handler.is_some()).count();
        f.debug_struct("Handlers").field("operations", &self.slots.len()).field("handled", &handled).finish()
    }
}
