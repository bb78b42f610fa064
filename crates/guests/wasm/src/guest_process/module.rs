//! Modules of zABI guests: compiling them, and checking what they import and export.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use wasmtime::{Config, Engine, ExternType, FuncType, InstancePre, Linker, ValType};

use super::calls;
use super::state::GuestState;
use crate::epoch;
use crate::module::MODULE_BYTES_MAX;

/// Why a module of a guest was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestLoadError {
    #[error("cannot read {}: {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("the module has more than {MODULE_BYTES_MAX} bytes, which is the limit")]
    TooLarge,
    #[error("not a module in the text format: {0}")]
    Text(String),
    #[error("{0}")]
    Compile(String),
    /// The names of all such imports, as `module.name`.
    #[error("the module imports {}, but guests are given only the calls of zABI 2.5: {}", .0.join(", "), offered())]
    Imports(Vec<String>),
    /// An import has the name of a call and another type.
    #[error("{0}")]
    ImportType(String),
    #[error("the module has no export {name}, which must be a {expected}")]
    MissingExport { name: &'static str, expected: &'static str },
    #[error("the export {name} is not a {expected}")]
    ExportType { name: &'static str, expected: &'static str },
}

fn offered() -> String {
    calls::NAMES.map(|name| format!("{}.{name}", calls::IMPORT_MODULE)).join(", ")
}

/// Compiles modules of guests. Unlike modules of effect runs, guests are not metered in fuel, which would slow down
/// every loop; their time is measured by the clock. Clones share one engine.
#[derive(Clone)]
pub struct GuestCompiler {
    engine: Engine,
    linker: Linker<GuestState>,
}

/// A module that is checked and compiled: every import is a call of zABI, and the exports that a guest needs are there.
/// Clones are cheap, and each may be started any number of times.
#[derive(Clone)]
pub struct GuestModule {
    pub(super) code: InstancePre<GuestState>,
}

impl GuestCompiler {
    /// # Errors
    ///
    /// [`GuestLoadError::Compile`] if wasmtime does not support this machine, or it has no thread left.
    pub fn new() -> Result<GuestCompiler, GuestLoadError> {
        let unsupported = |error: wasmtime::Error| GuestLoadError::Compile(format!("{error:#}"));
        let mut config = Config::new();
        config.epoch_interruption(true);
        let engine = Engine::new(&config).map_err(unsupported)?;
        let linker = calls::linker(&engine).map_err(unsupported)?;
        epoch::start_ticker(&engine).map_err(|error| GuestLoadError::Compile(error.to_string()))?;
        Ok(GuestCompiler { engine, linker })
    }

    /// Loads a module from its bytes: wasm, or the text format.
    ///
    /// # Errors
    ///
    /// [`GuestLoadError`] says what is wrong with the module.
    pub fn load(&self, bytes: &[u8]) -> Result<GuestModule, GuestLoadError> {
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(GuestLoadError::TooLarge);
        }
        let binary = wat::parse_bytes(bytes).map_err(|error| GuestLoadError::Text(error.to_string()))?;
        let code = wasmtime::Module::new(&self.engine, &binary);
        let code = code.map_err(|error| GuestLoadError::Compile(format!("{error:#}")))?;
        check_imports(&code)?;
        check_exports(&code)?;
        let code = self.linker.instantiate_pre(&code);
        let code = code.map_err(|error| GuestLoadError::ImportType(format!("{error:#}")))?;
        Ok(GuestModule { code })
    }

    /// Loads a `.wasm` or `.wat` file.
    ///
    /// # Errors
    ///
    /// [`GuestLoadError`] says what is wrong with the file or the module.
    pub fn load_file(&self, path: &Path) -> Result<GuestModule, GuestLoadError> {
        let unreadable = |error: std::io::Error| GuestLoadError::Read {
            path: path.to_owned(),
            message: error.to_string(),
        };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        // Reads a byte more than allowed, so that `load` sees that there is too much.
        file.take(MODULE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        self.load(&bytes)
    }
}

fn check_imports(code: &wasmtime::Module) -> Result<(), GuestLoadError> {
    let is_call = |import: &wasmtime::ImportType<'_>| {
        import.module() == calls::IMPORT_MODULE && calls::NAMES.contains(&import.name())
    };
    let unknown = code.imports().filter(|import| !is_call(import));
    let unknown: Vec<String> =
        unknown.map(|import| format!("{}.{}", import.module(), import.name())).collect();
    if unknown.is_empty() { Ok(()) } else { Err(GuestLoadError::Imports(unknown)) }
}

fn check_exports(code: &wasmtime::Module) -> Result<(), GuestLoadError> {
    check_export(code, "memory", "memory of 32-bit addresses", |ty| {
        ty.memory().is_some_and(|memory| !memory.is_64() && !memory.is_shared())
    })?;
    check_export(code, "main", "function of (i32, i32) that returns nothing or an i32", |ty| {
        ty.func().is_some_and(is_main)
    })?;
    let is_i32 = |ty: &ExternType| ty.global().is_some_and(|global| global.content().is_i32());
    match check_export(code, "__heap_base", "global of type i32", is_i32) {
        Err(GuestLoadError::MissingExport { .. }) => Ok(()),
        checked => checked,
    }
}

fn check_export(
    code: &wasmtime::Module,
    name: &'static str,
    expected: &'static str,
    is_right: impl FnOnce(&ExternType) -> bool,
) -> Result<(), GuestLoadError> {
    match code.get_export(name) {
        None => Err(GuestLoadError::MissingExport { name, expected }),
        Some(ty) if is_right(&ty) => Ok(()),
        Some(_) => Err(GuestLoadError::ExportType { name, expected }),
    }
}

fn is_main(ty: &FuncType) -> bool {
    ty.params().len() == 2
        && ty.params().all(|param| param.is_i32())
        && ty.results().len() <= 1
        && ty.results().all(|result| matches!(result, ValType::I32))
}

impl fmt::Debug for GuestCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestCompiler").finish_non_exhaustive()
    }
}

impl fmt::Debug for GuestModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestModule").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_offered_under_its_name() {
        let compiler = GuestCompiler::new().unwrap();
        let process = millrace_zabi::Process::new(millrace_zabi::ProcessOptions::new(
            "test",
            millrace_zabi::Grants::none(),
        ));
        let mut store = super::super::state::store(
            &compiler.engine,
            process,
            &super::super::limits::GuestLimits::default(),
        );
        let mut offered: Vec<String> =
            compiler.linker.iter(&mut store).map(|(_, name, _)| name.to_owned()).collect();
        offered.sort_unstable();
        let mut names = calls::NAMES;
        names.sort_unstable();
        assert_eq!(offered, names);
    }
}
