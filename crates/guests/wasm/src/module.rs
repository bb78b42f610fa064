//! Modules: loading, the cache of compiled code, and the facts that the rest of the host needs.

use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_runs::Operation;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::codec::abi::{self, AbiError};
use crate::codec::{Codec, Generation, GenerationA, GenerationB};
use crate::epoch;
use crate::handlers::Handlers;
use crate::imports;
use crate::sections::{SectionError, custom_section};
use crate::table::{self, EFFECT_TABLE_SECTION, EffectOp, TableError};

/// A module, binary or text, may be this long; a longer one is refused.
pub const MODULE_BYTES_MAX: usize = 64 << 20;

/// Compiled modules kept in memory. The one that was loaded first is dropped first; its users keep it.
pub const CACHED_MODULES_MAX: usize = 64;

/// Exports that every effect module has.
const REQUIRED_EXPORTS: [&str; 6] =
    ["memory", "init_effects", "effect_status", "effect_len", "effect_cont", "resume_effectful"];

const EFFECTFUL_SUFFIX: &str = "_effectful";

/// Why a module was not loaded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {}: {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("the module has more than {MODULE_BYTES_MAX} bytes, which is the limit")]
    TooLarge,
    #[error("not a module in the text format: {0}")]
    Text(String),
    #[error("{0}")]
    Section(#[from] SectionError),
    #[error("{0}")]
    Table(#[from] TableError),
    #[error("{0}")]
    Abi(#[from] AbiError),
    #[error("{0}")]
    Compile(String),
    #[error("Missing export {0}")]
    MissingExport(String),
    #[error("the module imports {module}.{name}, but effect modules are given nothing but voyd_math")]
    Import { module: String, name: String },
}

/// Compiles modules and keeps the compiled code in memory, by the hash of the module's bytes. Clones share the cache.
///
/// There is no cache on disk: wasmtime cannot verify native code that is read back, so a cache would need `unsafe` and
/// a folder that nobody else can write to.
#[derive(Clone)]
pub struct Compiler(Arc<CompilerState>);

struct CompilerState {
    engine: wasmtime::Engine,
    cache: Mutex<VecDeque<([u8; 32], Module)>>,
}

/// A loaded module: compiled code, effect table, types. Clones are cheap.
#[derive(Clone)]
pub struct Module {
    pub(crate) info: Arc<ModuleInfo>,
    pub(crate) code: wasmtime::Module,
}

/// The facts of a module that the host needs beside its code.
#[derive(Debug)]
pub(crate) struct ModuleInfo {
    pub(crate) generation: Generation,
    pub(crate) table: Vec<EffectOp>,
    pub(crate) operations: Arc<[Operation]>,
    pub(crate) codec: ModuleCodec,
}

/// The codec of a module's generation.
#[derive(Debug)]
pub(crate) enum ModuleCodec {
    A(GenerationA),
    B(GenerationB),
}

impl ModuleCodec {
    /// The interface that everything but the shapes of the functions goes through.
    pub(crate) fn seam(&self) -> &dyn Codec {
        match self {
            ModuleCodec::A(codec) => codec,
            ModuleCodec::B(codec) => codec,
        }
    }
}

impl Compiler {
    /// # Errors
    ///
    /// [`LoadError::Compile`] if wasmtime does not support this machine.
    pub fn new() -> Result<Compiler, LoadError> {
        let mut config = wasmtime::Config::new();
        config.consume_fuel(true).epoch_interruption(true);
        let engine =
            wasmtime::Engine::new(&config).map_err(|error| LoadError::Compile(format!("{error:#}")))?;
        epoch::start_ticker(&engine).map_err(|error| LoadError::Compile(error.to_string()))?;
        Ok(Compiler(Arc::new(CompilerState { engine, cache: Mutex::new(VecDeque::new()) })))
    }

    /// Loads a module from its bytes: wasm, or the text format.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says what is wrong with the module.
    pub fn load(&self, bytes: &[u8]) -> Result<Module, LoadError> {
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(LoadError::TooLarge);
        }
        let binary = wat::parse_bytes(bytes).map_err(|error| LoadError::Text(error.to_string()))?;
        let hash: [u8; 32] = Sha256::digest(&binary).into();
        if let Some(module) = self.cached(&hash) {
            return Ok(module);
        }
        let info = Arc::new(ModuleInfo::read(&binary)?);
        let code = wasmtime::Module::new(&self.0.engine, &binary);
        let code = code.map_err(|error| LoadError::Compile(format!("{error:#}")))?;
        check_shape(&code)?;
        let module = Module { info, code };
        self.keep(hash, module.clone());
        Ok(module)
    }

    /// Loads a `.wasm` or `.wat` file.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says what is wrong with the file or the module.
    pub fn load_file(&self, path: &Path) -> Result<Module, LoadError> {
        let unreadable =
            |error: std::io::Error| LoadError::Read { path: path.to_owned(), message: error.to_string() };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        // Reads a byte more than allowed, so that `load` sees that there is too much.
        file.take(MODULE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        self.load(&bytes)
    }

    pub(crate) fn engine(&self) -> &wasmtime::Engine {
        &self.0.engine
    }

    fn cached(&self, hash: &[u8; 32]) -> Option<Module> {
        let cache = self.0.cache.lock();
        cache.iter().find(|(cached, _)| cached == hash).map(|(_, module)| module.clone())
    }

    fn keep(&self, hash: [u8; 32], module: Module) {
        let mut cache = self.0.cache.lock();
        if cache.len() == CACHED_MODULES_MAX {
            cache.pop_front();
        }
        cache.push_back((hash, module));
    }
}

impl ModuleInfo {
    fn read(binary: &[u8]) -> Result<ModuleInfo, LoadError> {
        let section = custom_section(binary, EFFECT_TABLE_SECTION)?.ok_or(TableError::Missing)?;
        let table = table::parse(section)?;
        let exports = match custom_section(binary, abi::EXPORT_ABI_SECTION)? {
            Some(section) => abi::exports(section)?,
            None => None,
        };
        let codec = match exports {
            None => ModuleCodec::A(GenerationA),
            Some(exports) => {
                let section = custom_section(binary, abi::EFFECT_ABI_SECTION)?;
                let operations = section.map(abi::operations).transpose()?.unwrap_or_default();
                ModuleCodec::B(GenerationB { exports, operations })
            }
        };
        let generation = match codec {
            ModuleCodec::A(_) => Generation::A,
            ModuleCodec::B(_) => Generation::B,
        };
        let operations = table.iter().map(EffectOp::to_operation).collect();
        Ok(ModuleInfo { generation, table, operations, codec })
    }
}

fn check_shape(code: &wasmtime::Module) -> Result<(), LoadError> {
    imports::check(code)?;
    match REQUIRED_EXPORTS.into_iter().find(|name| code.get_export(name).is_none()) {
        Some(name) => Err(LoadError::MissingExport(name.to_owned())),
        None => Ok(()),
    }
}

impl Module {
    pub fn generation(&self) -> Generation {
        self.info.generation
    }

    /// The effect table. Modules also list operations of their library that they never ask for.
    pub fn operations(&self) -> &[EffectOp] {
        &self.info.table
    }

    /// The names that [`crate::Instance::start`] takes, in the module's order.
    pub fn effectful_exports(&self) -> Vec<String> {
        let names = self.code.exports().filter_map(|export| export.name().strip_suffix(EFFECTFUL_SUFFIX));
        names.filter(|name| *name != "resume").map(str::to_owned).collect()
    }

    /// An empty set of handlers for this module.
    pub fn handlers(&self) -> Handlers {
        Handlers::new(self.info.clone())
    }
}

/// Returns an export's name without and with the suffix; a name that already has it does not get another.
pub(crate) fn export_names(name: &str) -> (&str, String) {
    let bare = name.strip_suffix(EFFECTFUL_SUFFIX).unwrap_or(name);
    (bare, format!("{bare}{EFFECTFUL_SUFFIX}"))
}

/// Whether an export belongs to the protocol between module and host, so that no run may begin there.
pub(crate) fn is_protocol_export(name: &str) -> bool {
    REQUIRED_EXPORTS.contains(&name) || name.starts_with("__voyd_")
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").finish_non_exhaustive()
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Module { info, .. } = self;
        let mut debug = f.debug_struct("Module");
        debug
            .field("generation", &info.generation)
            .field("operations", &info.table.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest module of generation A, made distinct by a number.
    fn text(number: usize) -> String {
        let functions = ["init_effects", "effect_status", "effect_len", "effect_cont", "resume_effectful"];
        let functions: String = functions.iter().map(|name| format!("(func (export \"{name}\"))")).collect();
        let table = "(@custom \"__voyd_effect_table\" \"\\02\\00\\00\\00\\00\\00\\00\\00\")";
        format!(
            "(module {table} (memory (export \"memory\") 1) {functions} (global i32 (i32.const {number})))"
        )
    }

    #[test]
    fn equal_bytes_are_compiled_once_while_the_cache_holds_them() {
        let compiler = Compiler::new().unwrap();
        let first = compiler.load(text(0).as_bytes()).unwrap();
        let binary = wat::parse_str(text(0)).unwrap();
        assert!(
            Arc::ptr_eq(&first.info, &compiler.load(&binary).unwrap().info),
            "text and binary are the same module"
        );
        for number in 1..=CACHED_MODULES_MAX {
            compiler.load(text(number).as_bytes()).unwrap();
        }
        assert!(
            !Arc::ptr_eq(&first.info, &compiler.load(&binary).unwrap().info),
            "forgotten, and compiled again"
        );
        assert_eq!(first.generation(), Generation::A);
    }

    #[test]
    fn files_are_loaded_or_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program.wat");
        std::fs::write(&path, text(0)).unwrap();
        let compiler = Compiler::new().unwrap();
        assert!(compiler.load_file(&path).is_ok());
        let missing = folder.path().join("nothing.wasm");
        let error = compiler.load_file(&missing).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {}", missing.display())), "{error}");
    }

    #[test]
    fn a_name_is_not_given_the_suffix_twice() {
        assert_eq!(export_names("main"), ("main", "main_effectful".to_owned()));
        assert_eq!(export_names("main_effectful"), ("main", "main_effectful".to_owned()));
    }
}
