//! Walks over the heads or, for the past, over the history: page by page, never more than a page in memory.

use std::ops::ControlFlow;

use bytes::Bytes;
use millrace_model::{HeadRow, RowError, Space, StateCommit, VersionRow, keys};
use millrace_store::{KeyRange, Row, Store, try_each_row};
use serde_json::Value;

use super::ends::End;
use super::error::StateError;

/// Rows per read of the store.
pub(crate) const PAGE_ROWS: usize = 512;

/// A row that exists at the requested moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    /// The key of its identity.
    pub(crate) key: String,
    pub(crate) commit: StateCommit,
    pub(crate) schema: u32,
    pub(crate) fields: Value,
    /// The row itself; only for the newest state.
    pub(crate) head: Option<Bytes>,
}

pub(crate) type Visit<'v> = dyn FnMut(Found) -> Result<ControlFlow<()>, StateError> + 'v;

/// A walk over every identity whose key begins with `prefix`, as it is now or as of a commit. The newest state comes in
/// the order of keys, the past in the order of the history's keys.
pub(crate) struct StateWalk<'a> {
    pub(crate) prefix: &'a str,
    /// Only relations with this escaped right key; other rows are skipped without decoding them.
    pub(crate) right: Option<&'a str>,
    /// Continues where another walk stopped: the key of the last row that it returned.
    pub(crate) after: Option<&'a str>,
    pub(crate) as_of: Option<StateCommit>,
}

impl StateWalk<'_> {
    pub(crate) fn visit(&self, store: &dyn Store, each: &mut Visit<'_>) -> Result<(), StateError> {
        let mut range = KeyRange::prefix(self.prefix);
        match (self.after, self.as_of) {
            (None, _) => {}
            (Some(after), None) => range.from = format!("{after}\0"),
            // Skips all versions of the identity: `0` is the character after the slash.
            (Some(after), Some(_)) => range.from = format!("{after}/0"),
        }
        match self.as_of {
            None => heads(store, range, self.right, each),
            Some(commit) => past(store, range, commit, self.right, each),
        }
    }
}

pub(crate) fn find(
    store: &dyn Store,
    key: &str,
    as_of: Option<StateCommit>,
) -> Result<Option<Found>, StateError> {
    let only = KeyRange { from: key.to_owned(), to: Some(format!("{key}\0")) };
    let mut found = None;
    heads(store, only, None, &mut |head| {
        found = Some(head);
        Ok(ControlFlow::Break(()))
    })?;
    let Some(commit) = as_of else { return Ok(found) };
    // A row that has not changed since the commit needs no search in its history.
    if found.as_ref().is_some_and(|head| head.commit <= commit) {
        return Ok(found);
    }
    found = None;
    past(store, versions_of(key), commit, None, &mut |version| {
        found = Some(version);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Returns the range of all versions of an identity.
pub(crate) fn versions_of(identity_key: &str) -> KeyRange {
    KeyRange::prefix(&format!("{identity_key}//"))
}

fn heads(
    store: &dyn Store,
    range: KeyRange,
    right: Option<&str>,
    each: &mut Visit<'_>,
) -> Result<(), StateError> {
    rows(store, Space::Heads, range, &mut |Row { key, value }| {
        if right.is_some_and(|right| End::Right.of(&key) != Some(right)) {
            return Ok(ControlFlow::Continue(()));
        }
        let HeadRow { fields, commit, schema } = HeadRow::decode(&key, &value)?;
        let fields = parse(&key, &fields)?;
        each(Found { key, commit, schema, fields, head: Some(value) })
    })
}

/// Visits the state as of a commit. The versions of an identity are adjacent, the oldest first: the last one that is
/// not too new counts.
fn past(
    store: &dyn Store,
    range: KeyRange,
    as_of: StateCommit,
    right: Option<&str>,
    each: &mut Visit<'_>,
) -> Result<(), StateError> {
    let mut best: Option<(String, StateCommit, VersionRow)> = None;
    let mut stopped = false;
    rows(store, Space::History, range, &mut |Row { key, value }| {
        let Some((identity, commit)) = split_version(&key) else { return Ok(ControlFlow::Continue(())) };
        if commit > as_of || right.is_some_and(|right| End::Right.of(identity) != Some(right)) {
            return Ok(ControlFlow::Continue(()));
        }
        let version = VersionRow::decode(&key, &value)?;
        let done = best.take_if(|(of, _, _)| of != identity);
        best = Some((identity.to_owned(), commit, version));
        let flow = done.map_or(Ok(ControlFlow::Continue(())), |done| emit(done, each))?;
        stopped |= flow.is_break();
        Ok(flow)
    })?;
    if let Some(last) = best.filter(|_| !stopped) {
        let _ended = emit(last, each)?;
    }
    Ok(())
}

fn emit(
    (key, commit, version): (String, StateCommit, VersionRow),
    each: &mut Visit<'_>,
) -> Result<ControlFlow<()>, StateError> {
    let VersionRow { fields: Some(fields), schema } = version else { return Ok(ControlFlow::Continue(())) };
    let fields = parse(&key, &fields)?;
    each(Found { key, commit, schema, fields, head: None })
}

/// Calls `each` with the rows of a range, until it breaks.
pub(crate) fn rows(
    store: &dyn Store,
    space: Space,
    range: KeyRange,
    each: &mut dyn FnMut(Row) -> Result<ControlFlow<()>, StateError>,
) -> Result<(), StateError> {
    try_each_row(store, space, range, PAGE_ROWS, each)
}

/// Splits the key of a version into the identity's key and the commit, see [`keys::version`]. Splits at the last two
/// slashes: the key of a relation without an instance key ends in a slash itself.
pub(crate) fn split_version(key: &str) -> Option<(&str, StateCommit)> {
    let (identity, digits) = key.rsplit_once("//")?;
    let commit = StateCommit(u64::from_str_radix(digits, 16).ok()?);
    (keys::version(identity, commit) == key).then_some((identity, commit))
}

pub(crate) fn parse(key: &str, fields: &str) -> Result<Value, StateError> {
    Ok(serde_json::from_str(fields).map_err(|source| RowError { key: key.to_owned(), source })?)
}
