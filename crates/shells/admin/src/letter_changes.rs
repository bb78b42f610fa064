//! Replays or deletes dead letters of one handler: those of named events, or a page of all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use millrace_claims::{DeadLetter, ReplayError};
use millrace_model::{DeadLetterRow, EventId, HandlerId, Namespace, Op, Space, Timestamp, keys};
use millrace_store::{KeyRange, Row};

use super::replay::Handlers;
use super::{Admin, AdminError, ChangeError};

/// Which letters of a handler an action is about, the oldest first.
#[derive(Clone, Debug)]
pub struct LetterChoice {
    pub handler: HandlerId,
    /// Only letters of these events.
    pub events: Option<BTreeSet<EventId>>,
    /// [`LettersDone::after`] of the page before.
    pub after: Option<String>,
    pub max: usize,
}

/// A letter as it is stored, and decoded.
type ChosenLetter = (Row, DeadLetterRow);

/// The result of a page of letters.
#[derive(Debug, Default)]
pub struct LettersDone {
    pub done: Vec<EventId>,
    /// Letters that could not be replayed are still there.
    pub refused: Vec<(EventId, ReplayError)>,
    /// Set if there may be more: the next page begins behind this key.
    pub after: Option<String>,
}

impl Admin {
    /// Opens the events of letters again for the handler that gave up on them, as
    /// [`Admin::replay_dead_letters`] does for all handlers.
    pub fn replay_letters(
        &self,
        namespace: &Namespace,
        choice: &LetterChoice,
        now: Timestamp,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<LettersDone, ChangeError> {
        // The rows of handlers are read before any letter: see `Admin::replay_dead_letters`.
        let handlers = self.known_handlers(namespace)?;
        let (letters, after) = self.chosen(namespace, choice, may_see)?;
        let mut page = LettersDone { after, ..LettersDone::default() };
        for (row, letter) in letters {
            let id = letter.event_id.clone();
            match self.replay_one(namespace, &handlers, row, letter, now) {
                Ok(true) => page.done.push(id),
                // Another process has taken the letter meanwhile.
                Ok(false) => {}
                Err(ChangeError::Replay(refused)) => page.refused.push((id, refused)),
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }

    fn replay_one(
        &self,
        namespace: &Namespace,
        handlers: &Handlers,
        Row { key, value }: Row,
        row: DeadLetterRow,
        now: Timestamp,
    ) -> Result<bool, ChangeError> {
        let stream = DeadLetter::stream_of(namespace, &row)?;
        let (event, handler, finished, is_open) = (None, None, None, false);
        let mut letter = DeadLetter { key, value, row, stream, event, handler, finished, is_open };
        self.replay_letter(namespace, handlers, &mut letter, now)
    }

    /// Deletes letters; their events are not sent again.
    pub fn delete_letters(
        &self,
        namespace: &Namespace,
        choice: &LetterChoice,
        now: Timestamp,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<LettersDone, ChangeError> {
        let (letters, after) = self.chosen(namespace, choice, may_see)?;
        let (mut done, mut ops) = (Vec::new(), Vec::new());
        for (row, letter) in letters {
            done.push(letter.event_id);
            ops.push(Op::Delete { space: Space::DeadLetters, key: row.key });
        }
        if !ops.is_empty() {
            self.write_ops(now, ops)?;
        }
        Ok(LettersDone { done, refused: Vec::new(), after })
    }

    /// Returns the chosen letters, and the key behind which there may be more.
    fn chosen(
        &self,
        namespace: &Namespace,
        choice: &LetterChoice,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<(Vec<ChosenLetter>, Option<String>), AdminError> {
        let mut range = KeyRange::prefix(&format!("{namespace}/"));
        if let Some(after) = choice.after.as_deref().filter(|after| range.contains(after)) {
            range.from = format!("{after}\0");
        }
        let replaying = self.replaying(&format!("{namespace}/"))?;
        let mut keys_of: Vec<(String, String)> = Vec::new();
        // Named events are looked for among all letters of the handler: their number is bounded by the caller.
        let keys_max = if choice.events.is_some() { usize::MAX } else { choice.max + 1 };
        self.each_key(Space::DeadLetters, range, |key| {
            let of = keys::dead_letter_place(key)
                .filter(|(_, _, handler)| *handler == choice.handler.as_str() && !replaying.contains(key));
            keys_of.extend(of.map(|(_, topic, _)| (key.to_owned(), topic.to_owned())));
            if keys_of.len() >= keys_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let more = keys_of.len() > choice.max && choice.events.is_none();
        keys_of.truncate(if choice.events.is_some() { usize::MAX } else { choice.max });
        let after = keys_of.last().filter(|_| more).map(|(key, _)| key.clone());
        let (mut letters, mut seen) = (Vec::new(), BTreeMap::new());
        for (key, topic) in keys_of {
            let may = match seen.get(&topic) {
                Some(may) => *may,
                None => *seen.entry(topic.clone()).or_insert(may_see(&topic)?),
            };
            let Some(row) = (if may { self.row(Space::DeadLetters, &key)? } else { None }) else { continue };
            let letter = DeadLetterRow::decode(&row.key, &row.value)?;
            if choice.events.as_ref().is_none_or(|wanted| wanted.contains(&letter.event_id)) {
                letters.push((row, letter));
            }
            if letters.len() == choice.max {
                break;
            }
        }
        Ok((letters, after))
    }
}
