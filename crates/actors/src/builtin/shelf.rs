//! What Memory keeps: JSON values under paths, in the store, and all of them in memory.
//!
//! Only this process writes these rows, so what is in memory is what is in the store; a value is shown to others only
//! after its commit. Both are bounded, so nothing has to be read while the loop runs. Commits of several changes may be
//! under way at once, so that they share a sync.

use std::collections::BTreeMap;
use std::ops::Bound;

use millrace_bus::{Reply, Request};
use millrace_model::{JsonText, Op, OsFault, Space, keys};
use millrace_runtime::{Call, Handle};
use millrace_store::{KeyRange, Store, StoreError, each_row};
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
const SEALED: &str = "/vault/";
const SEAL: &str = "pwenc:v1:";

#[derive(Debug)]
pub struct Shelf {
    bus: Handle,
    limits: MemoryLimits,
    /// What the store holds, as far as its commits were confirmed.
    values: BTreeMap<String, JsonText>,
    bytes: usize,
    /// Writes whose commit has not been confirmed: each counts as one more path, and with all its bytes.
    writes: usize,
    writes_bytes: usize,
}

/// A change on its way to the store.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) path: String,
    /// `None` = the path goes.
    value: Option<JsonText>,
}

impl Write {
    fn bytes(&self) -> usize {
        self.path.len() + self.value.as_ref().map_or(0, |value| value.bytes().len())
    }

    /// To be awaited in the order in which the changes were made; see [`committed`].
    pub(crate) async fn hand_over(&self, bus: Handle) -> Result<Call, OsFault> {
        let (space, key) = (Space::Kv, row(&self.path));
        let op = match &self.value {
            Some(value) => Op::Put { space, key, value: value.bytes().clone() },
            None => Op::Delete { space, key },
        };
        let request = Request::Write { ops: vec![op], durability: None };
        bus.hand_over(None, request).await.map_err(faults::of_ended)
    }
}

/// When a write that was handed over is durable.
pub(crate) async fn committed(call: Result<Call, OsFault>) -> Result<(), OsFault> {
    match call?.reply().await {
        Ok(Reply::Written) => Ok(()),
        Ok(other) => Err(faults::of_reply(&other)),
        Err(ended) => Err(faults::of_ended(ended)),
    }
}

impl Shelf {
    /// Reads every value. Blocks.
    pub fn load(store: &dyn Store, bus: Handle, limits: MemoryLimits) -> Result<Shelf, StoreError> {
        let values = BTreeMap::new();
        let mut shelf = Shelf { bus, limits, values, bytes: 0, writes: 0, writes_bytes: 0 };
        let prefix = row("");
        each_row(store, Space::Kv, KeyRange::prefix(&format!("{prefix}/")), |found| {
            let path = found.key.strip_prefix(&prefix).unwrap_or(&found.key).to_owned();
            shelf.put(path, JsonText::from_stored(found.value));
        })?;
        Ok(shelf)
    }

    pub(crate) fn bus(&self) -> Handle {
        self.bus.clone()
    }

    /// The value, or null.
    pub(crate) fn get(&self, path: &str) -> Result<JsonText, OsFault> {
        self.check(path)?;
        Ok(self.values.get(path).cloned().unwrap_or_else(JsonText::null))
    }

    /// To be committed, then settled.
    pub(crate) fn set(&mut self, path: &str, value: &RawValue) -> Result<Write, OsFault> {
        self.check(path)?;
        check_seal(path, value)?;
        let value = JsonText::from_checked(value);
        let (bytes, max) = (value.bytes().len(), self.limits.value_bytes_max);
        if bytes > max {
            let why = format!("The value of '{path}' has {bytes} bytes: at most {max} are allowed");
            return Err(OsFault::new(413, why));
        }
        let write = Write { path: path.to_owned(), value: Some(value) };
        self.check_room(&write)?;
        Ok(self.begun(write))
    }

    /// The same. `None`: there is nothing, and nothing on its way.
    pub(crate) fn delete(&mut self, path: &str) -> Result<Option<Write>, OsFault> {
        self.check(path)?;
        if self.writes == 0 && !self.values.contains_key(path) {
            return Ok(None);
        }
        Ok(Some(self.begun(Write { path: path.to_owned(), value: None })))
    }

    fn begun(&mut self, write: Write) -> Write {
        self.writes += 1;
        self.writes_bytes += write.bytes();
        write
    }

    /// Its commit is over. In the order in which they were begun; only now others see it.
    pub(crate) fn settle(&mut self, write: Write, committed: bool) {
        self.writes -= 1;
        self.writes_bytes -= write.bytes();
        match write.value {
            _ if !committed => {}
            Some(value) => self.put(write.path, value),
            None => self.remove(&write.path),
        }
    }

    fn put(&mut self, path: String, value: JsonText) {
        self.remove(&path);
        self.bytes += path.len() + value.bytes().len();
        self.values.insert(path, value);
    }

    fn remove(&mut self, path: &str) {
        if let Some(old) = self.values.remove(path) {
            self.bytes -= path.len() + old.bytes().len();
        }
    }

    /// An object of paths and values, in the order of paths, as many as fit. If there are more, its last member is
    /// `next`, which is no path because it does not begin with `/`: the path to go on after.
    pub(crate) fn list(&self, prefix: &str, after: Option<&str>) -> Result<JsonText, OsFault> {
        let from = match after.filter(|after| *after >= prefix) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let mut page = String::from("{");
        let mut last: Option<&str> = None;
        for (path, value) in self.values.range::<str, _>((from, Bound::Unbounded)) {
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

    fn check_room(&self, write: &Write) -> Result<(), OsFault> {
        let MemoryLimits { keys_max, bytes_max, .. } = self.limits;
        let old = self.values.get(&write.path).map(|old| write.path.len() + old.bytes().len());
        if old.is_none() && self.values.len() + self.writes >= keys_max {
            return Err(OsFault::new(503, format!("Memory is full: it holds {keys_max} paths, delete some")));
        }
        if self.bytes - old.unwrap_or(0) + self.writes_bytes + write.bytes() > bytes_max {
            return Err(OsFault::new(
                503,
                format!("Memory is full: it holds {bytes_max} bytes, delete some"),
            ));
        }
        Ok(())
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

    async fn set(shelf: &mut Shelf, path: &str, json: &str) -> Result<(), OsFault> {
        let write = shelf.set(path, &raw(json))?;
        let done = committed(write.hand_over(shelf.bus()).await).await;
        shelf.settle(write, done.is_ok());
        done
    }

    async fn delete(shelf: &mut Shelf, path: &str) {
        if let Some(write) = shelf.delete(path).unwrap() {
            committed(write.hand_over(shelf.bus()).await).await.unwrap();
            shelf.settle(write, true);
        }
    }

    #[tokio::test]
    async fn a_value_is_kept_byte_for_byte_over_a_restart() {
        let bench = Bench::new();
        let value = r#"{ "a":1e400, "b":[12345678901234567890,-0],"c":"\ud800" }"#;
        set(&mut bench.shelf(MemoryLimits::default()), "/a/b", value).await.unwrap();
        let mut shelf = bench.shelf(MemoryLimits::default());
        assert_eq!(shelf.get("/a/b").unwrap().as_str(), value);
        assert_eq!(shelf.get("/a").unwrap().as_str(), "null");
        delete(&mut shelf, "/a/b").await;
        delete(&mut shelf, "/a/b").await;
        assert_eq!(bench.shelf(MemoryLimits::default()).get("/a/b").unwrap().as_str(), "null");
    }

    #[tokio::test]
    async fn pages_together_hold_everything_once_and_each_one_fits() {
        let bench = Bench::new();
        let mut shelf = bench.shelf(MemoryLimits { page_bytes_max: 300, ..MemoryLimits::default() });
        for n in 0..40 {
            set(&mut shelf, &format!("/k/{n:02}"), &format!("\"{}\"", "v".repeat(n))).await.unwrap();
        }
        set(&mut shelf, "/l", "1").await.unwrap();
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
        let mut shelf = bench.shelf(limits);
        let refused = |result: Result<(), OsFault>| {
            let fault = result.unwrap_err();
            (fault.code, fault.message)
        };
        assert_eq!(
            refused(set(&mut shelf, "a", "1").await),
            (422, "Invalid path: 'a'. Paths MUST be absolute (start with /).".to_owned())
        );
        assert_eq!(refused(set(&mut shelf, "/a\n", "1").await).0, 422);
        assert_eq!(refused(set(&mut shelf, "/a", &"1".repeat(21)).await).0, 413);
        for value in ["1", "\"pwenc:v2:x\"", "{\"a\":\"pwenc:v1:\"}"] {
            let (code, message) = refused(set(&mut shelf, "/vault/a", value).await);
            assert_eq!(code, 422);
            assert!(message.starts_with("E_VAULT_REQUIRES_PWENC"), "{message}");
        }
        set(&mut shelf, "/vault/a", "\"pwenc:v1:x\"").await.unwrap();
        set(&mut shelf, "/b", "1").await.unwrap();
        let full = (503, "Memory is full: it holds 2 paths, delete some".to_owned());
        assert_eq!(refused(set(&mut shelf, "/c", "1").await), full);
        assert_eq!(refused(set(&mut shelf, "/b", "12345678901234567890").await).0, 503);
        delete(&mut shelf, "/vault/a").await;
        set(&mut shelf, "/b", "12345678901234567890").await.unwrap();
        assert_eq!(shelf.list("", None).unwrap().as_str(), r#"{"/b":12345678901234567890}"#);
    }

    #[tokio::test]
    async fn what_is_not_durable_is_not_shown_and_counts_all_the_same() {
        let bench = Bench::new();
        let mut shelf = bench.shelf(MemoryLimits { keys_max: 2, ..MemoryLimits::default() });
        let first = shelf.set("/a", &raw("1")).unwrap();
        let second = shelf.set("/a", &raw("2")).unwrap();
        assert_eq!(shelf.get("/a").unwrap().as_str(), "null");
        assert_eq!(shelf.set("/b", &raw("1")).unwrap_err().code, 503);
        let gone = shelf.delete("/a").unwrap().expect("something is on its way");
        for (write, then) in [(first, "1"), (second, "2"), (gone, "null")] {
            committed(write.hand_over(shelf.bus()).await).await.unwrap();
            shelf.settle(write, true);
            assert_eq!(shelf.get("/a").unwrap().as_str(), then);
        }
        assert_eq!((shelf.bytes, shelf.writes, shelf.writes_bytes), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_bus_that_is_gone_answers_and_nothing_is_shown_that_is_not_durable() {
        let bench = Bench::new();
        let mut shelf = bench.shelf(MemoryLimits::default());
        bench.runtime.end();
        assert_eq!(set(&mut shelf, "/a", "1").await.unwrap_err().code, 503);
        assert_eq!(shelf.get("/a").unwrap().as_str(), "null");
        assert_eq!((shelf.bytes, shelf.writes, shelf.writes_bytes), (0, 0, 0));
    }
}
