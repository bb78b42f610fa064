//! Moves delayed events that are due to their topics. Every running worker does so, and the server.
//!
//! Every move is conditional: it is refused if another mover has moved one of its rows before, and this worker then
//! reads the table again. So each event is appended once, however many sessions wake for it. A worker moves the rows of
//! all namespaces, because they are in one table, ordered by time, and nobody may run in some namespace.
//!
//! A session that runs no handlers has no worker, and moves nothing.

use bytes::Bytes;
use millrace_model::{
    Batch, Check, DueBy, DueEvent, Durability, ELAPSED_APART_MS, Mono, Now, Op, Outcome, Space, Timestamp,
    keys, set_aside,
};

use crate::action::{Act, Then};
use crate::effect::{Effect, Note};
use crate::input::{Look, Seen};
use crate::worker::{Pending, Phase, Worker};

/// Rows moved by one commit.
const MOVE_ROWS_MAX: usize = 256;
/// Bytes of rows moved by one commit; a single row is moved however large.
const MOVE_BYTES_MAX: usize = 4 << 20;
/// Pause before the table is read again after a read failed or a move was too large.
const RETRY_MS: u64 = 500;

#[derive(Debug, Default)]
pub(crate) struct Due {
    /// When the first row of each kind is due, in the time of that kind. `None` = there is none, as far as this worker
    /// knows.
    wall: Option<Timestamp>,
    elapsed: Option<Timestamp>,
    /// Somebody has delayed an event: look up when the first one is due.
    news: bool,
    /// A read of the table or a move is under way; only one at a time.
    busy: bool,
}

impl Due {
    fn next(&mut self, by: DueBy) -> &mut Option<Timestamp> {
        match by {
            DueBy::Wall => &mut self.wall,
            DueBy::Elapsed => &mut self.elapsed,
        }
    }

    fn known(&self, by: DueBy) -> Option<Timestamp> {
        match by {
            DueBy::Wall => self.wall,
            DueBy::Elapsed => self.elapsed,
        }
    }
}

/// How to handle a row that is due.
#[derive(Debug)]
pub(crate) enum Moving {
    Append(DueEvent),
    /// The event's topic was deleted: nobody can ever receive the event, not even if a topic with that name is created
    /// again.
    Remove(DueEvent),
    /// The row cannot be read.
    SetAside(String, Bytes),
}

impl Moving {
    /// The first of the checks holds while the row is in the table.
    fn checks(&self) -> Vec<Check> {
        match self {
            Moving::Append(event) => vec![event.waits(), event.topic_stands()],
            Moving::Remove(event) => vec![event.waits()],
            Moving::SetAside(key, _) => vec![Check::Present { space: Space::Due, key: key.clone() }],
        }
    }

    fn ops(&self) -> Vec<Op> {
        match self {
            Moving::Append(event) => {
                let mut ops = event.removal();
                ops.push(Op::Append(event.append()));
                ops
            }
            Moving::Remove(event) => event.removal(),
            Moving::SetAside(key, value) => set_aside(key, value.clone()).to_vec(),
        }
    }
}

impl Worker {
    /// Somebody has delayed events, perhaps this session itself.
    pub(crate) fn delayed(&mut self) {
        self.due.news = true;
    }

    /// This session has delayed an event, so its due time is known.
    pub(crate) fn expect_due(&mut self, key: &str) {
        let (by, at) = (DueBy::of(key), keys::due_time(key).unwrap_or_default());
        let next = self.due.next(by);
        *next = Some(next.map_or(at, |next| next.min(at)));
    }

    /// Returns `now` with its wall time replaced by the clock that events of this kind wait for. A row may be from
    /// another process, whose elapsed time is behind this one's: its event must not be early.
    fn now_by(&self, now: Now, by: DueBy) -> Now {
        match by {
            DueBy::Wall => now,
            DueBy::Elapsed => Now { wall: self.elapsed.at(now).saturating_sub(ELAPSED_APART_MS), ..now },
        }
    }

    /// When the table must be read again, if nothing else happens.
    pub(crate) fn next_due(&self, now: Now) -> Option<Mono> {
        if self.due.busy {
            return None;
        }
        let next = |by| self.due.known(by).map(|at| self.now_by(now, by).mono_at(at));
        let news = self.due.news.then_some(now.mono);
        DueBy::ALL.into_iter().filter_map(next).chain(news).min()
    }

    pub(crate) fn wake_due(&mut self, now: Now) {
        if self.due.busy {
            return;
        }
        if std::mem::take(&mut self.due.news) {
            return self.look_at_due(DueBy::Wall, DueLook::First);
        }
        let is_due = |by: &DueBy| self.due.known(*by).is_some_and(|at| at <= self.now_by(now, *by).wall);
        if let Some(by) = DueBy::ALL.into_iter().find(is_due) {
            self.look_at_due(by, DueLook::Rows);
        }
    }

    fn look_at_due(&mut self, by: DueBy, what: DueLook) {
        self.due.busy = true;
        *self.due.next(by) = None;
        let (from, to) = by.key_range();
        let rows_max = match what {
            DueLook::First => 1,
            DueLook::Rows => MOVE_ROWS_MAX,
        };
        let token = self.token(Pending::DueLook(by, what));
        let (from, to) = (from.to_owned(), to.unwrap_or(keys::DUE_END).to_owned());
        self.effects.push(Effect::Look { token, look: Look::Rows { space: Space::Due, from, to, rows_max } });
    }

    pub(crate) fn due_rows_seen(&mut self, now: Now, by: DueBy, what: DueLook, seen: Option<Seen>) {
        self.due.busy = false;
        let Some(Seen::Rows(rows)) = seen else {
            // The read of the other kind, which would have followed, is repeated as well.
            for by in DueBy::ALL {
                let (again, next) = (self.now_by(now, by).wall + RETRY_MS, self.due.next(by));
                *next = Some(next.map_or(again, |next| next.min(again)));
            }
            return;
        };
        match what {
            DueLook::First => {
                rows.iter().for_each(|(key, _)| self.expect_due(key));
                // Read the other kind next.
                if by == DueBy::Wall {
                    self.look_at_due(DueBy::Elapsed, DueLook::First);
                }
            }
            DueLook::Rows => self.move_rows(now, by, rows),
        }
    }

    fn move_rows(&mut self, now: Now, by: DueBy, rows: Vec<(String, Bytes)>) {
        let time = self.now_by(now, by).wall;
        let full = rows.len() >= MOVE_ROWS_MAX;
        let (mut moving, mut bytes) = (Vec::new(), 0);
        for (key, value) in rows {
            let later = keys::due_time(&key).filter(|at| *at > time);
            bytes += value.len();
            if later.is_some() || (bytes > MOVE_BYTES_MAX && !moving.is_empty()) {
                self.expect_due(&key);
                break;
            }
            moving.push(match DueEvent::read(&key, &value) {
                Some(event) => Moving::Append(event),
                None => Moving::SetAside(key, value),
            });
        }
        if full && self.due.known(by).is_none() {
            *self.due.next(by) = Some(time);
        }
        if !moving.is_empty() && self.phase == Phase::Working {
            self.commit_move(now, by, moving);
        }
    }

    fn commit_move(&mut self, now: Now, by: DueBy, moving: Vec<Moving>) {
        self.due.busy = true;
        let batch = Batch {
            nonce: self.draw.next(),
            now: now.wall,
            durability: Durability::Fsync,
            checks: moving.iter().flat_map(Moving::checks).collect(),
            ops: moving.iter().flat_map(Moving::ops).collect(),
        };
        let token = self.token(Pending::DueMove(by, moving));
        self.effects.push(Effect::Commit { token, batch });
    }

    pub(crate) fn due_moved(&mut self, now: Now, by: DueBy, mut moving: Vec<Moving>, outcome: &Outcome) {
        self.due.busy = false;
        let Outcome::Refused(refusal) = outcome else {
            for one in moving {
                match one {
                    Moving::Append(event) => self.news_of(&event.topic),
                    Moving::SetAside(key, _) => self.effects.push(Effect::Note(Note::DueSetAside { key })),
                    Moving::Remove(_) => {}
                }
            }
            return;
        };
        let mut first = 0;
        let refused = moving.iter_mut().find_map(|one| {
            let at = refusal.check.checked_sub(first)?;
            let checks = one.checks().len();
            first += checks;
            (at < checks).then_some((one, at))
        });
        match refused {
            Some((one, 1)) => {
                if let Moving::Append(event) = one {
                    *one = Moving::Remove(event.clone());
                }
                self.commit_move(now, by, moving);
            }
            // Another mover was faster. Read the table again to see what is left.
            _ => *self.due.next(by) = Some(Timestamp(0)),
        }
    }

    pub(crate) fn due_too_large(&mut self, now: Now, by: DueBy) {
        self.due.busy = false;
        *self.due.next(by) = Some(self.now_by(now, by).wall + RETRY_MS);
    }

    /// Stores the elapsed time again if the wall clock has been set since the last write: a restart would otherwise
    /// misjudge how long delays have waited.
    pub(crate) fn keep_elapsed(&mut self, now: Now) {
        if self.elapsed.is_outdated(now) {
            let ops = vec![self.elapsed.put(now)];
            self.send(now, Act { checks: Vec::new(), ops, then: Then::Nothing });
        }
    }
}

/// The purpose of a read of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueLook {
    /// To find out when the first row is due.
    First,
    /// To move the rows that are due.
    Rows,
}
