//! The only imports that effect modules are given: the functions of `voyd_math`, which compilers of generation A use
//! where wasm has no instructions. They reach nothing outside the module.

use wasmtime::{Extern, Func, Store};

use crate::instance::{Growth, InstantiateError};
use crate::module::{LoadError, Module};

const MATH: &str = "voyd_math";

enum Math {
    One(fn(f64) -> f64),
    Two(fn(f64, f64) -> f64),
}

fn math(name: &str) -> Option<Math> {
    Some(match name {
        "sin" => Math::One(f64::sin),
        "cos" => Math::One(f64::cos),
        "tan" => Math::One(f64::tan),
        "ln" => Math::One(f64::ln),
        "log2" => Math::One(f64::log2),
        "log10" => Math::One(f64::log10),
        "exp" => Math::One(f64::exp),
        "pow" => Math::Two(f64::powf),
        "atan2" => Math::Two(f64::atan2),
        _ => return None,
    })
}

/// Refuses modules that import anything else.
pub(crate) fn check(code: &wasmtime::Module) -> Result<(), LoadError> {
    let unknown = code.imports().find(|import| import.module() != MATH || math(import.name()).is_none());
    unknown.map_or(Ok(()), |import| {
        Err(LoadError::Import { module: import.module().to_owned(), name: import.name().to_owned() })
    })
}

/// The functions that a module imports, in its order.
pub(crate) fn provide(store: &mut Store<Growth>, module: &Module) -> Result<Vec<Extern>, InstantiateError> {
    let provide = |import: wasmtime::ImportType<'_>| match math(import.name()) {
        Some(Math::One(function)) => Ok(Func::wrap(&mut *store, move |x: f64| function(x)).into()),
        Some(Math::Two(function)) => Ok(Func::wrap(&mut *store, move |x: f64, y: f64| function(x, y)).into()),
        None => Err(InstantiateError::Instantiate(format!("there is no import {}", import.name()))),
    };
    module.code.imports().map(provide).collect()
}
