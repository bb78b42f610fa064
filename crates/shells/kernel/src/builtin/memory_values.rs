//! The values of Memory: JSON under paths, separate for each namespace, in the store and all of them in memory
//! (`ValueCache`).
//!
//! Only this process writes these rows, so memory and store agree; a value is visible to readers only after its commit.
//! Number and bytes of the values are bounded, so all fit in memory and nothing has to be read from the store while the
//! loop runs. Commits of several changes may be under way at once, so that they share a sync.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use millrace_model::{JsonText, Namespace, Namespaces, Op, OsFault, Space, keys};
use millrace_shell::{RowWrite, RowWriter};
use millrace_store::{KeyRange, Store, StoreError, each_row};
use serde_json::value::RawValue;

use crate::builtin::faults;

/// The bounds of Memory, each with the answer when it is reached.
#[derive(Clone, Debug)]
pub struct MemoryLimits {
    /// Paths that hold a value. A new one above this is refused with 503. The holder of a token may use half of them,
    /// over all namespaces of the token together, so that others have room.
    pub keys_max: usize,
    /// Bytes of all paths and values together. A value that would exceed it is refused with 503. Shared in the same
    /// way.
    pub bytes_max: usize,
    /// Bytes of one path: 422.
    pub key_bytes_max: usize,
    /// Bytes of one value: 413. Small enough that a line has room for it with its path and the longest metadata.
    pub value_bytes_max: usize,
    /// Bytes of data in one page of Memory.List. The rest is for the next page.
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

const SEALED: &str = "/vault/";
const SEAL: &str = "pwenc:v1:";

#[derive(Debug)]
pub struct ValueCache {
    rows: RowWriter,
    limits: MemoryLimits,
    /// The values in the store, as far as the commits were confirmed.
    values: BTreeMap<Namespace, BTreeMap<String, JsonText>>,
    /// Use over all namespaces.
    total: Held,
    /// Use of each namespace that has values or writes.
    by_namespace: BTreeMap<Namespace, Held>,
    /// Writes whose commit has not been confirmed.
    writes: usize,
}

/// Paths and bytes in use. A write whose commit has not been confirmed counts as one more path, with all its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    keys: usize,
    bytes: usize,
}

impl Held {
    fn add(&mut self, bytes: usize) {
        *self = Held { keys: self.keys + 1, bytes: self.bytes + bytes };
    }

    fn take(&mut self, bytes: usize) {
        *self = Held { keys: self.keys.saturating_sub(1), bytes: self.bytes.saturating_sub(bytes) };
    }

    /// Whether a path and `bytes` more fit under `max`. `old` is the size of the value that is replaced, if there is
    /// one.
    fn check(self, of: &str, old: Option<usize>, bytes: usize, max: Held) -> Result<(), OsFault> {
        let full = |what: String| OsFault::new(503, format!("{of} is full: it holds {what}, delete some"));
        if old.is_none() && self.keys >= max.keys {
            return Err(full(format!("{} paths", max.keys)));
        }
        if self.bytes.saturating_sub(old.unwrap_or(0)) + bytes > max.bytes {
            return Err(full(format!("{} bytes", max.bytes)));
        }
        Ok(())
    }
}

/// How much of Memory the sender of a value may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share<'a> {
    /// All of it: for administrators, the owner of the socket and capabilities.
    Whole,
    /// Half of it, over these namespaces together: for the holder of a token.
    Half(&'a Namespaces),
}

/// A change on its way to the store.
#[derive(Debug)]
pub(crate) struct Write {
    namespace: Namespace,
    path: String,
    /// `None` = the path is deleted.
    value: Option<JsonText>,
}

impl Write {
    fn bytes(&self) -> usize {
        self.path.len() + self.value.as_ref().map_or(0, |value| value.bytes().len())
    }

    /// Hands the change to the writer. Calls must be awaited in the order in which the changes were made; see
    /// [`committed`] for the result.
    pub(crate) async fn hand_over(&self, rows: RowWriter) -> Result<RowWrite, OsFault> {
        let (space, key) = (Space::Kv, row(&self.namespace, &self.path));
        let op = match &self.value {
            Some(value) => Op::Put { space, key, value: value.bytes().clone() },
            None => Op::Delete { space, key },
        };
        rows.hand_over(vec![op]).await.map_err(|error| faults::of_rows(&error))
    }
}

/// Waits until a write that was handed over is durable.
pub(crate) async fn committed(write: Result<RowWrite, OsFault>) -> Result<(), OsFault> {
    write?.durable().await.map_err(|error| faults::of_rows(&error))
}

impl ValueCache {
    /// Reads every value from the store. Blocks.
    pub fn load(store: &dyn Store, rows: RowWriter, limits: MemoryLimits) -> Result<ValueCache, StoreError> {
        let values = BTreeMap::new();
        let (total, by_namespace) = (Held::default(), BTreeMap::new());
        let mut values_cache = ValueCache { rows, limits, values, total, by_namespace, writes: 0 };
        let prefix = rows_prefix();
        each_row(store, Space::Kv, KeyRange::prefix(&prefix), |found| {
            // Every row here has the prefix and a path; others are skipped.
            let key = found.key.strip_prefix(&prefix).unwrap_or_default();
            let Some(at) = key.find('/') else { return };
            let (namespace, path) = key.split_at(at);
            if let Ok(namespace) = Namespace::new(namespace) {
                values_cache.put(namespace, path.to_owned(), JsonText::from_stored(found.value));
            }
        })?;
        Ok(values_cache)
    }

    pub(crate) fn rows(&self) -> RowWriter {
        self.rows.clone()
    }

    /// Returns the value, or null.
    pub(crate) fn get(&self, at: &Namespace, path: &str) -> Result<JsonText, OsFault> {
        self.check(path)?;
        Ok(self.value(at, path).cloned().unwrap_or_else(JsonText::null))
    }

    /// Checks a new value and counts it. The caller commits the write and then calls [`ValueCache::settle`].
    pub(crate) fn set(
        &mut self,
        at: &Namespace,
        path: &str,
        value: &RawValue,
        share: Share<'_>,
    ) -> Result<Write, OsFault> {
        self.check(path)?;
        check_segments(path, path)?;
        check_seal(path, value)?;
        let value = JsonText::from_checked(value);
        let (bytes, max) = (value.bytes().len(), self.limits.value_bytes_max);
        if bytes > max {
            let why = format!("The value of '{path}' has {bytes} bytes: at most {max} are allowed");
            return Err(OsFault::new(413, why));
        }
        let write = Write { namespace: at.clone(), path: path.to_owned(), value: Some(value) };
        self.check_room(&write, share)?;
        Ok(self.begun(write))
    }

    /// Like [`ValueCache::set`], for a deletion. `None`: there is no value, and no write is under way.
    pub(crate) fn delete(&mut self, at: &Namespace, path: &str) -> Result<Option<Write>, OsFault> {
        self.check(path)?;
        if self.writes == 0 && self.value(at, path).is_none() {
            return Ok(None);
        }
        let write = Write { namespace: at.clone(), path: path.to_owned(), value: None };
        Ok(Some(self.begun(write)))
    }

    fn begun(&mut self, write: Write) -> Write {
        self.writes += 1;
        self.count(&write.namespace, |held| held.add(write.bytes()));
        write
    }

    /// Ends a write after its commit, successful or not. Must be called in the order in which the writes were begun.
    /// Only from now on readers see the change.
    pub(crate) fn settle(&mut self, write: Write, committed: bool) {
        self.writes -= 1;
        self.count(&write.namespace, |held| held.take(write.bytes()));
        match write.value {
            _ if !committed => {}
            Some(value) => self.put(write.namespace, write.path, value),
            None => self.remove(&write.namespace, &write.path),
        }
    }

    fn value(&self, at: &Namespace, path: &str) -> Option<&JsonText> {
        self.values.get(at)?.get(path)
    }

    fn put(&mut self, at: Namespace, path: String, value: JsonText) {
        self.remove(&at, &path);
        self.count(&at, |held| held.add(path.len() + value.bytes().len()));
        self.values.entry(at).or_default().insert(path, value);
    }

    fn remove(&mut self, at: &Namespace, path: &str) {
        let Some(values) = self.values.get_mut(at) else { return };
        let old = values.remove(path);
        if values.is_empty() {
            self.values.remove(at);
        }
        if let Some(old) = old {
            self.count(at, |held| held.take(path.len() + old.bytes().len()));
        }
    }

    fn count(&mut self, at: &Namespace, change: impl Fn(&mut Held)) {
        change(&mut self.total);
        let held = self.by_namespace.entry(at.clone()).or_default();
        change(held);
        if *held == Held::default() {
            self.by_namespace.remove(at);
        }
    }

    /// Returns an object of paths and values, in the order of paths, as many as fit a page: the path `prefix` and those
    /// below it, or with a `/` at its end only those below it. If there are more, the last member is `next`: the path
    /// to continue after. `next` cannot be mistaken for a path because it does not begin with `/`.
    pub(crate) fn list(
        &self,
        at: &Namespace,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<JsonText, OsFault> {
        if !prefix.is_empty() {
            self.check(prefix)?;
        }
        if prefix != "/" {
            check_segments(prefix, prefix.strip_suffix('/').unwrap_or(prefix))?;
        }
        let own = prefix.trim_end_matches('/');
        let below = format!("{own}/");
        let from = match after.filter(|after| *after >= below.as_str()) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(below.as_str()),
        };
        let is_first = !prefix.ends_with('/') && after.is_none_or(|after| after < own);
        let mut page = String::from("{");
        let mut last: Option<&str> = None;
        let values = self.values.get(at);
        let itself = values.filter(|_| is_first).and_then(|all| all.get_key_value(own));
        let rest = values.into_iter().flat_map(|all| all.range::<str, _>((from, Bound::Unbounded)));
        let rest = rest.take_while(|(path, _)| path.starts_with(&below));
        for (path, value) in itself.into_iter().chain(rest) {
            let name = faults::json(path)?;
            // A comma, a colon and the closing brace; and below, a `next` member with the last path of this page.
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

    fn check_room(&self, write: &Write, share: Share<'_>) -> Result<(), OsFault> {
        let MemoryLimits { keys_max, bytes_max, .. } = self.limits;
        let old = self.value(&write.namespace, &write.path);
        let old = old.map(|old| write.path.len() + old.bytes().len());
        self.total.check("Memory", old, write.bytes(), Held { keys: keys_max, bytes: bytes_max })?;
        let Share::Half(namespaces) = share else { return Ok(()) };
        let half = Held { keys: (keys_max / 2).max(1), bytes: bytes_max / 2 };
        let of = match namespaces.as_deref() {
            None => "all namespaces".to_owned(),
            Some([one]) => format!("namespace {one}"),
            Some(_) => "the token's namespaces".to_owned(),
        };
        let of = format!("The share of {of} in Memory");
        self.held_in(namespaces).check(&of, old, write.bytes(), half)
    }

    fn held_in(&self, namespaces: &Namespaces) -> Held {
        let Some(names) = namespaces else { return self.total };
        let each = names.iter().collect::<BTreeSet<_>>().into_iter();
        each.filter_map(|name| self.by_namespace.get(name)).fold(Held::default(), |sum, held| Held {
            keys: sum.keys + held.keys,
            bytes: sum.bytes + held.bytes,
        })
    }
}

/// `router/memory/NAMESPACE/PATH`
fn row(at: &Namespace, path: &str) -> String {
    format!("{}{at}{path}", rows_prefix())
}

fn rows_prefix() -> String {
    format!("{}memory/", keys::ROUTER)
}

/// Checks the segments of new paths and of prefixes. A path that was stored before this rule existed can still be read
/// and deleted.
fn check_segments(shown: &str, path: &str) -> Result<(), OsFault> {
    let is_wrong = |segment: &str| matches!(segment, "" | "." | "..");
    if path.is_empty() || !path.split('/').skip(1).any(is_wrong) {
        return Ok(());
    }
    let shown: String = shown.chars().take(80).collect();
    let why = format!(
        "Invalid path: '{shown}'. Between two / must be a name, and neither . nor .., such as in /settings/colour."
    );
    Err(OsFault::new(422, why))
}

/// Values below `/vault/` must be encrypted, so that a stolen store reveals nothing.
fn check_seal(path: &str, value: &RawValue) -> Result<(), OsFault> {
    let is_sealed = || serde_json::from_str::<String>(value.get()).is_ok_and(|text| text.starts_with(SEAL));
    if path.starts_with(SEALED) && !is_sealed() {
        return Err(OsFault::new(
            422,
            format!("E_VAULT_REQUIRES_PWENC: {SEALED} paths accept only ciphertext ({SEAL}...)."),
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "memory_values_tests.rs"]
mod tests;
