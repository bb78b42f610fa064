//! The memory store passes the suite of all adapters.

use millrace_conformance::{Subject, conformance_suite};
use millrace_store::MemoryStore;

conformance_suite!(|| Subject::new(Box::new(MemoryStore::new()), |store| store));
