//! What Memory keeps: JSON values under paths, in the store, and all of them in memory.
//!
//! Only this process writes these rows, so what is in memory is what is in the store; a value is shown to others only
//! after its commit. Both are bounded, so nothing has to be read while the loop runs.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_bus::{Reply, Request};
use millrace_model::{JsonText, Op, OsFault, Space, keys};
use millrace_runtime::Handle;
use millrace_store::{KeyRange, Store, StoreError};
use serde_json::value::RawValue;

use crate::builtin::faults;

/// Each with the answer when it is reached.
#[derive(Clone, Debug)]
pub struct MemoryLimits {
    /// Paths that hold a value: a new one is refused with 503.
    pub keys_max: usize,
    /// Of all paths and values together: what would go beyond it is refused with 503.
    pub bytes_max: usize,
    /// One path: 422.
    pub key_bytes_max: usize,
    /// One value: 413. So that it fits a line together with its path and the longest metadata.
    pub value_bytes_max: usize,
    /// Data of one page of Memory.List: the rest is for the next.
    pub page_bytes_max: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits {
            keys_max: 100_000,
            bytes_max: 64 << 20,
            key_bytes_max: 1024,
            value_bytes_max: 12 << 10,
            page_bytes_max: 15_000,
        }
    }
}

/// The namespace of every path so far; the rows leave room for others.
const NAMESPACE: &str = "default";
const SCAN_ROWS_MAX: usize = 1000;
const SEALED: &str = "/vault/";
const SEAL: &str = "pwenc:v1:";

#[derive(Debug)]
pub struct Shelf {
    bus: Handle,
    limits: MemoryLimits,
    values: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    by_path: BTreeMap<String, JsonText>,
    bytes: usize,
}

impl Values {
    fn put(&mut self, path: String, value: JsonText) {
        self.bytes += path.len() + value.bytes().len();
        let path_bytes = path.len();
        if let Some(old) = self.by_path.insert(path, value) {
            self.bytes -= path_bytes + old.bytes().len();
        }
    }

    fn remove(&mut self, path: &str) {
        if let Some(old) = self.by_path.remove(path) {
            self.bytes -= path.len() + old.bytes().len();
        }
    }
}

impl Shelf {
    /// Reads every value. Blocks.
    pub fn load(store: &dyn Store, bus: Handle, limits: MemoryLimits) -> Result<Shelf, StoreError> {
        let mut values = Values::default();
        let prefix = row("");
        let mut range = KeyRange::prefix(&format!("{prefix}/"));
        loop {
            let rows = store.scan(Space::Kv, &range, SCAN_ROWS_MAX)?;
            let is_last = rows.len() < SCAN_ROWS_MAX;
            if let Some(last) = rows.last() {
                range.from = format!("{}\0", last.key);
            }
            for found in rows {
                let path = found.key.strip_prefix(&prefix).unwrap_or(&found.key).to_owned();
                values.put(path, JsonText::from_stored(found.value));
            }
            if is_last {
                return Ok(Shelf { bus, limits, values: Mutex::new(values) });
            }
        }
    }

    /// The value, or null.
    pub fn get(&self, path: &str) -> Result<JsonText, OsFault> {
        self.check(path)?;
        Ok(self.values().by_path.get(path).cloned().unwrap_or_else(JsonText::null))
    }

    /// Durable when it returns.
    pub async fn set(&self, path: &str, value: &RawValue) -> Result<(), OsFault> {
        self.check(path)?;
        check_seal(path, value)?;
        let value = JsonText::from_checked(value);
        let bytes = value.bytes().len();
        if bytes > self.limits.value_bytes_max {
            let max = self.limits.value_bytes_max;
            return Err(OsFault::new(
                413,
                format!("The value of '{path}' has {bytes} bytes: at most {max} are allowed"),
            ));
        }
        self.check_room(path, bytes)?;
        self.write(Op::Put { space: Space::Kv, key: row(path), value: value.bytes().clone() }).await?;
        self.values().put(path.to_owned(), value);
        Ok(())
    }

    /// Durable when it returns. What is not there is gone already.
    pub async fn delete(&self, path: &str) -> Result<(), OsFault> {
        self.check(path)?;
        if !self.values().by_path.contains_key(path) {
            return Ok(());
        }
        self.write(Op::Delete { space: Space::Kv, key: row(path) }).await?;
        self.values().remove(path);
        Ok(())
    }

    /// An object of paths and values, in the order of paths, as many as fit. If there are more, its last member is
    /// `next`, which is no path because it does not begin with `/`: the path to go on after.
    pub fn list(&self, prefix: &str, after: Option<&str>) -> Result<JsonText, OsFault> {
        let from = match after.filter(|after| *after >= prefix) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let values = self.values();
        let mut page = String::from("{");
        let mut last: Option<&str> = None;
        for (path, value) in values.by_path.range::<str, _>((from, Bound::Unbounded)) {
            if !path.starts_with(prefix) {
                break;
            }
            let name = faults::json(path)?;
            // Room for a comma, a colon, the brace, and the `next` that tells of this page's last path.
            let needed = name.len() + value.bytes().len() + 3;
            let next = last.map_or(name.len(), |last| 2 * last.len() + 2) + ",\"next\":".len();
            if page.len() + needed + next > self.limits.page_bytes_max {
                let Some(last) = last else {
                    let why = format!("The value of '{path}' alone does not fit a page of Memory.List");
                    return Err(OsFault::new(413, why));
                };
                page.push_str(",\"next\":");
                page.push_str(&faults::json(last)?);
                break;
            }
            if last.is_some() {
                page.push(',');
            }
            page.push_str(&name);
            page.push(':');
            page.push_str(value.as_str());
            last = Some(path);
        }
        page.push('}');
        Ok(JsonText::from_stored(page.into()))
    }

    fn check(&self, path: &str) -> Result<(), OsFault> {
        let shown = || path.chars().take(80).collect::<String>();
        if !path.starts_with('/') {
            let why = format!("Invalid path: '{}'. Paths MUST be absolute (start with /).", shown());
            return Err(OsFault::new(422, why));
        }
        let max = self.limits.key_bytes_max;
        if path.len() > max || path.chars().any(char::is_control) {
            let why = format!(
                "Invalid path: '{}'. Paths have at most {max} bytes and no control characters.",
                shown()
            );
            return Err(OsFault::new(422, why));
        }
        Ok(())
    }

    fn check_room(&self, path: &str, bytes: usize) -> Result<(), OsFault> {
        let MemoryLimits { keys_max, bytes_max, .. } = self.limits;
        let values = self.values();
        let old = values.by_path.get(path).map(|old| path.len() + old.bytes().len());
        if old.is_none() && values.by_path.len() >= keys_max {
            return Err(OsFault::new(503, format!("Memory is full: it holds {keys_max} paths, delete some")));
        }
        if values.bytes - old.unwrap_or(0) + path.len() + bytes > bytes_max {
            return Err(OsFault::new(
                503,
                format!("Memory is full: it holds {bytes_max} bytes, delete some"),
            ));
        }
        Ok(())
    }

    async fn write(&self, op: Op) -> Result<(), OsFault> {
        match self.bus.call(Request::Write { ops: vec![op], durability: None }).await {
            Ok(Reply::Written) => Ok(()),
            Ok(other) => Err(faults::of_reply(&other)),
            Err(ended) => Err(faults::of_ended(ended)),
        }
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        // Nothing in it panics half way, so the values are whole.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `router/memory/NAMESPACE/PATH`
fn row(path: &str) -> String {
    format!("{}memory/{NAMESPACE}{path}", keys::ROUTER)
}

/// The bytes below `/vault/` are to be of no use to whoever gets hold of the store.
fn check_seal(path: &str, value: &RawValue) -> Result<(), OsFault> {
    let is_sealed = || serde_json::from_str::<String>(value.get()).is_ok_and(|text| text.starts_with(SEAL));
    if path.starts_with(SEALED) && !is_sealed() {
        return Err(OsFault::new(
            422,
            format!(
                "E_VAULT_REQUIRES_PWENC: a value below {SEALED} must be a string that begins with {SEAL}"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_bus::BusLimits;
    use millrace_runtime::{Runtime, RuntimeSettings};
    use millrace_store::MemoryStore;

    use super::*;

    struct Bench {
        store: Arc<dyn Store>,
        runtime: Runtime,
    }

    impl Bench {
        fn new() -> Bench {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
            let runtime = Runtime::start(RuntimeSettings::default(), &store, BusLimits::default()).unwrap();
            Bench { store, runtime }
        }

        /// As a process finds it that starts now.
        fn shelf(&self, limits: MemoryLimits) -> Shelf {
            Shelf::load(&*self.store, self.runtime.handle(), limits).unwrap()
        }
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[tokio::test]
    async fn a_value_is_kept_byte_for_byte_over_a_restart() {
        let bench = Bench::new();
        let value = r#"{ "a":1e400, "b":[12345678901234567890,-0],"c":"\ud800" }"#;
        bench.shelf(MemoryLimits::default()).set("/a/b", &raw(value)).await.unwrap();
        let shelf = bench.shelf(MemoryLimits::default());
        assert_eq!(shelf.get("/a/b").unwrap().as_str(), value);
        assert_eq!(shelf.get("/a").unwrap().as_str(), "null");
        shelf.delete("/a/b").await.unwrap();
        shelf.delete("/a/b").await.unwrap();
        assert_eq!(bench.shelf(MemoryLimits::default()).get("/a/b").unwrap().as_str(), "null");
    }

    #[tokio::test]
    async fn pages_together_hold_everything_once_and_each_one_fits() {
        let bench = Bench::new();
        let shelf = bench.shelf(MemoryLimits { page_bytes_max: 300, ..MemoryLimits::default() });
        for n in 0..40 {
            shelf.set(&format!("/k/{n:02}"), &raw(&format!("\"{}\"", "v".repeat(n)))).await.unwrap();
        }
        shelf.set("/l", &raw("1")).await.unwrap();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = shelf.list("/k/", after.as_deref()).unwrap();
            assert!(page.bytes().len() <= 300, "{} bytes", page.bytes().len());
            let mut page: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(page.as_str()).unwrap();
            let next = page.remove("next");
            seen.extend(page.keys().cloned());
            let Some(next) = next else { break };
            after = Some(next.as_str().unwrap().to_owned());
        }
        let all: Vec<String> = (0..40).map(|n| format!("/k/{n:02}")).collect();
        assert_eq!(seen, all);
        assert_eq!(shelf.list("/none", None).unwrap().as_str(), "{}");
    }

    #[tokio::test]
    async fn what_is_refused_changes_nothing() {
        let bench = Bench::new();
        let limits =
            MemoryLimits { keys_max: 2, bytes_max: 40, value_bytes_max: 20, ..MemoryLimits::default() };
        let shelf = bench.shelf(limits);
        let refused = |result: Result<(), OsFault>| {
            result.map_or_else(|fault| (fault.code, fault.message), |()| panic!())
        };
        assert_eq!(
            refused(shelf.set("a", &raw("1")).await),
            (422, "Invalid path: 'a'. Paths MUST be absolute (start with /).".to_owned())
        );
        assert_eq!(refused(shelf.set("/a\n", &raw("1")).await).0, 422);
        assert_eq!(refused(shelf.set("/a", &raw(&"1".repeat(21))).await).0, 413);
        for value in ["1", "\"pwenc:v2:x\"", "{\"a\":\"pwenc:v1:\"}"] {
            let (code, message) = refused(shelf.set("/vault/a", &raw(value)).await);
            assert_eq!(code, 422);
            assert!(message.starts_with("E_VAULT_REQUIRES_PWENC"), "{message}");
        }
        shelf.set("/vault/a", &raw("\"pwenc:v1:x\"")).await.unwrap();
        shelf.set("/b", &raw("1")).await.unwrap();
        assert_eq!(
            refused(shelf.set("/c", &raw("1")).await),
            (503, "Memory is full: it holds 2 paths, delete some".to_owned())
        );
        assert_eq!(refused(shelf.set("/b", &raw("12345678901234567890")).await).0, 503);
        shelf.delete("/vault/a").await.unwrap();
        shelf.set("/b", &raw("12345678901234567890")).await.unwrap();
        assert_eq!(shelf.list("", None).unwrap().as_str(), r#"{"/b":12345678901234567890}"#);
    }

    #[tokio::test]
    async fn a_bus_that_is_gone_answers_and_nothing_is_shown_that_is_not_durable() {
        let bench = Bench::new();
        let shelf = bench.shelf(MemoryLimits::default());
        bench.runtime.end();
        assert_eq!(shelf.set("/a", &raw("1")).await.unwrap_err().code, 503);
        assert_eq!(shelf.get("/a").unwrap().as_str(), "null");
    }
}
