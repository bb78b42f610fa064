//! The functions of an instance, with their types checked once.

use wasmtime::{Func, Global, Instance, Store, TypedFunc, ValType, WasmParams, WasmResults};

use super::{Growth, InstantiateError, StepRef};
use crate::codec::Generation;

pub(crate) struct Functions {
    instance: Instance,
    generation: Generation,
    pub(crate) init_effects: TypedFunc<i32, ()>,
    pub(crate) effect_status: TypedFunc<StepRef, i32>,
    pub(crate) effect_len: TypedFunc<StepRef, i32>,
    pub(crate) effect_cont: TypedFunc<StepRef, StepRef>,
    pub(crate) resume: Resume,
    /// Address and length of a panic's text (generation B).
    pub(crate) panic: Option<(Global, Global)>,
}

/// `NAME_effectful`, in the shape of its generation.
#[derive(Clone)]
pub(crate) enum EntryFunction {
    /// Buffer, capacity.
    A(TypedFunc<(i32, i32), StepRef>),
    /// Input, its length, buffer, capacity.
    B(TypedFunc<(i32, i32, i32, i32), StepRef>),
}

/// `resume_effectful`, in the shape of its generation.
#[derive(Clone)]
pub(crate) enum Resume {
    /// Continuation, buffer, length of the reply, capacity.
    A(TypedFunc<(StepRef, i32, i32, i32), StepRef>),
    /// The same, and which kind of call completes (0: an export), and its id.
    B(TypedFunc<(StepRef, i32, i32, i32, i32, i32), StepRef>),
}

impl Functions {
    pub(crate) fn find(
        store: &mut Store<Growth>,
        instance: Instance,
        generation: Generation,
    ) -> Result<Functions, InstantiateError> {
        Ok(Functions {
            init_effects: function(store, instance, "init_effects", "function of (i32)")?,
            effect_status: function(store, instance, "effect_status", "function of (result) -> i32")?,
            effect_len: function(store, instance, "effect_len", "function of (result) -> i32")?,
            effect_cont: function(store, instance, "effect_cont", "function of (result) -> anyref")?,
            resume: match generation {
                Generation::A => Resume::A(function(
                    store,
                    instance,
                    "resume_effectful",
                    "function of (request, i32, i32, i32) -> result",
                )?),
                Generation::B => Resume::B(function(
                    store,
                    instance,
                    "resume_effectful",
                    "function of (request, i32, i32, i32, i32, i32) -> result",
                )?),
            },
            panic: panic_globals(store, instance),
            instance,
            generation,
        })
    }

    /// An export that asks for no effects.
    pub(crate) fn pure(&self, store: &mut Store<Growth>, name: &str) -> Result<Func, InstantiateError> {
        let function = self.instance.get_func(store, name);
        function.ok_or_else(|| InstantiateError::MissingExport(name.to_owned()))
    }

    pub(crate) fn entry(
        &self,
        store: &mut Store<Growth>,
        name: &str,
    ) -> Result<EntryFunction, InstantiateError> {
        Ok(match self.generation {
            Generation::A => {
                EntryFunction::A(function(store, self.instance, name, "function of (i32, i32) -> result")?)
            }
            Generation::B => EntryFunction::B(function(
                store,
                self.instance,
                name,
                "function of (i32, i32, i32, i32) -> result",
            )?),
        })
    }
}

fn function<P: WasmParams, R: WasmResults>(
    store: &mut Store<Growth>,
    instance: Instance,
    name: &str,
    expected: &str,
) -> Result<TypedFunc<P, R>, InstantiateError> {
    let export = instance.get_export(&mut *store, name);
    let export = export.ok_or_else(|| InstantiateError::MissingExport(name.to_owned()))?;
    let function = export.into_func().and_then(|function| function.typed(store).ok());
    function.ok_or_else(|| export_type(name, expected))
}

pub(super) fn export_type(name: &str, expected: &str) -> InstantiateError {
    InstantiateError::ExportType { name: name.to_owned(), expected: expected.to_owned() }
}

fn panic_globals(store: &mut Store<Growth>, instance: Instance) -> Option<(Global, Global)> {
    let mut global = |name| {
        let global = instance.get_global(&mut *store, name)?;
        let ty = global.ty(&*store);
        let usable = matches!(ty.content(), ValType::I32) && ty.mutability() == wasmtime::Mutability::Var;
        usable.then_some(global)
    };
    Some((global("__voyd_panic_ptr")?, global("__voyd_panic_len")?))
}
