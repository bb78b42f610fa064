//! Dead letters of handlers: which handlers have some, and pages of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use millrace_model::{ClaimRow, DeadLetterRow, Namespace, Space, Timestamp, keys};
use millrace_store::{KeyRange, Store, StoreError, try_each_row};

use super::{Admin, AdminError, PAGE_ROWS};

/// The letters of a handler about events of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerLetters {
    pub handler_id: String,
    pub event_type: String,
    pub count: u64,
    pub oldest: Timestamp,
    pub newest: Timestamp,
}

/// A page of letters, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LetterPage {
    pub letters: Vec<DeadLetterRow>,
    /// Set if there may be more: the next page begins behind this key.
    pub after: Option<String>,
}

/// Which letters a page holds, and how many.
#[derive(Clone, Debug)]
pub struct LetterQuery<'a> {
    pub handler: &'a str,
    /// [`LetterPage::after`] of the previous page.
    pub after: Option<&'a str>,
    pub letters_max: usize,
    /// A page ends with the letter that passes this.
    pub bytes_max: usize,
}

/// Returns the keys of letters that are being replayed, by the claims under `prefix`. Such letters are kept until their
/// claims have ended, and are hidden meanwhile. A claim that cannot be decoded hides nothing.
pub fn replaying(store: &dyn Store, prefix: &str) -> Result<BTreeSet<String>, StoreError> {
    let mut found = BTreeSet::new();
    try_each_row(store, Space::Claims, KeyRange::prefix(prefix), PAGE_ROWS, &mut |row| {
        found.extend(ClaimRow::decode(&row.key, &row.value).ok().and_then(|claim| claim.letter));
        Ok::<_, StoreError>(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

impl Admin {
    pub(super) fn replaying(&self, prefix: &str) -> Result<BTreeSet<String>, StoreError> {
        replaying(&*self.store, prefix)
    }

    /// Counts the letters under `prefix` that are not hidden.
    pub(super) fn count_letters(&self, prefix: &str) -> Result<u64, AdminError> {
        let all = self.count_rows(Space::DeadLetters, prefix)?;
        Ok(all.saturating_sub(self.replaying(prefix)?.len() as u64))
    }

    /// Returns every handler of the namespace that gave up on an event, by id and event type. Reads only keys, which
    /// contain everything needed, so large events cost nothing.
    pub fn letters_by_handler(&self, namespace: &Namespace) -> Result<Vec<HandlerLetters>, AdminError> {
        let mut found: BTreeMap<(String, String), HandlerLetters> = BTreeMap::new();
        let replaying = self.replaying(&format!("{namespace}/"))?;
        self.each_key(Space::DeadLetters, KeyRange::prefix(&format!("{namespace}/")), |key| {
            let shown = keys::dead_letter_place(key).filter(|_| !replaying.contains(key));
            let Some((failed_at, topic, handler)) = shown else {
                return ControlFlow::Continue(());
            };
            let of = found.entry((handler.to_owned(), topic.to_owned()));
            let of = of.or_insert_with(|| HandlerLetters {
                handler_id: handler.to_owned(),
                event_type: topic.to_owned(),
                count: 0,
                oldest: failed_at,
                newest: failed_at,
            });
            of.count += 1;
            of.newest = of.newest.max(failed_at);
            ControlFlow::Continue(())
        })?;
        Ok(found.into_values().collect())
    }

    /// Returns a page of a handler's letters about events of types for which `may_see` holds.
    pub fn letters_of(
        &self,
        namespace: &Namespace,
        query: &LetterQuery<'_>,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<LetterPage, AdminError> {
        let mut range = KeyRange::prefix(&format!("{namespace}/"));
        if let Some(after) = query.after.filter(|after| range.contains(after)) {
            range.from = format!("{after}\0");
        }
        let mut wanted = Vec::new();
        let replaying = self.replaying(&format!("{namespace}/"))?;
        self.each_key(Space::DeadLetters, range, |key| {
            let of = keys::dead_letter_place(key)
                .filter(|(_, _, handler)| *handler == query.handler && !replaying.contains(key));
            wanted.extend(of.map(|(_, topic, _)| (key.to_owned(), topic.to_owned())));
            // A letter more than is shown tells whether there is more.
            if wanted.len() > query.letters_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let (mut page, mut bytes) = (LetterPage::default(), 0);
        let more = wanted.len() > query.letters_max;
        let mut last = None;
        for (at, (key, topic)) in wanted.iter().take(query.letters_max).enumerate() {
            last = Some(key.clone());
            if !may_see(topic)? {
                continue;
            }
            let Some(row) = self.row(Space::DeadLetters, key)? else { continue };
            bytes += row.value.len();
            page.letters.push(DeadLetterRow::decode(&row.key, &row.value)?);
            if bytes >= query.bytes_max && at + 1 < wanted.len() {
                page.after = last;
                return Ok(page);
            }
        }
        page.after = last.filter(|_| more);
        Ok(page)
    }
}
