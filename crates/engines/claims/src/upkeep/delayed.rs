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

use crate::commits::action::{Action, FollowUp};
use crate::interface::effect::Note;
use crate::interface::input::{ReadQuery, ReadResult};
use crate::requests::{PendingCommit, PendingRead};
use crate::worker::Worker;

/// Rows moved by one commit.
const MOVE_ROWS_MAX: usize = 256;
/// Bytes of rows moved by one commit; a single row is moved however large.
const MOVE_BYTES_MAX: usize = 4 << 20;
/// Pause before the table is read again after a read failed or a move was too large.
const RETRY_MS: u64 = 500;

#[derive(Debug, Default)]
pub(crate) struct DueMover {
    /// When the first row of each kind is due, in the time of that kind. `None` = there is none, as far as this worker
    /// knows.
    wall: Option<Timestamp>,
    elapsed: Option<Timestamp>,
    /// Somebody has delayed an event: look up when the first one is due.
    news: bool,
    /// A read of the table or a move is under way; only one at a time.
    busy: bool,
}

impl DueMover {
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

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Somebody has delayed events, perhaps this session itself.
    pub(crate) fn on_news(&mut self) {
        self.news = true;
    }

    /// This session has delayed an event, or read its row: the due time is known from the key.
    pub(crate) fn expect(&mut self, key: &str) {
        let (by, at) = (DueBy::of(key), keys::due_time(key).unwrap_or_default());
        let next = self.next(by);
        *next = Some(next.map_or(at, |next| next.min(at)));
    }
}

/// How to handle a row that is due.
#[derive(Debug)]
pub(crate) enum DueMove {
    Append(DueEvent),
    /// The event's topic was deleted: nobody can ever receive the event, not even if a topic with that name is created
    /// again.
    Remove(DueEvent),
    /// The row cannot be read.
    SetAside(String, Bytes),
}

impl DueMove {
    /// The first of the checks holds while the row is in the table.
    fn checks(&self) -> Vec<Check> {
        match self {
            DueMove::Append(event) => vec![event.waits(), event.topic_stands()],
            DueMove::Remove(event) => vec![event.waits()],
            DueMove::SetAside(key, _) => vec![Check::Present { space: Space::Due, key: key.clone() }],
        }
    }

    fn ops(&self) -> Vec<Op> {
        match self {
            DueMove::Append(event) => {
                let mut ops = event.removal();
                ops.push(Op::Append(event.append()));
                ops
            }
            DueMove::Remove(event) => event.removal(),
            DueMove::SetAside(key, value) => set_aside(key, value.clone()).to_vec(),
        }
    }
}

impl Worker {
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
        if self.mover.busy {
            return None;
        }
        let next = |by| self.mover.known(by).map(|at| self.now_by(now, by).mono_at(at));
        let news = self.mover.news.then_some(now.mono);
        DueBy::ALL.into_iter().filter_map(next).chain(news).min()
    }

    pub(crate) fn wake_due(&mut self, now: Now) {
        if self.mover.busy {
            return;
        }
        if std::mem::take(&mut self.mover.news) {
            return self.read_due(DueBy::Wall, DueRead::First);
        }
        let is_due = |by: &DueBy| self.mover.known(*by).is_some_and(|at| at <= self.now_by(now, *by).wall);
        if let Some(by) = DueBy::ALL.into_iter().find(is_due) {
            self.read_due(by, DueRead::Rows);
        }
    }

    fn read_due(&mut self, by: DueBy, what: DueRead) {
        self.mover.busy = true;
        *self.mover.next(by) = None;
        let (from, to) = by.key_range();
        let rows_max = match what {
            DueRead::First => 1,
            DueRead::Rows => MOVE_ROWS_MAX,
        };
        let (from, to) = (from.to_owned(), to.unwrap_or(keys::DUE_END).to_owned());
        let query = ReadQuery::Rows { space: Space::Due, from, to, rows_max };
        self.requests.read(PendingRead::Due(by, what), query);
    }

    pub(crate) fn on_due_rows(&mut self, now: Now, by: DueBy, what: DueRead, result: Option<ReadResult>) {
        self.mover.busy = false;
        let Some(ReadResult::Rows(rows)) = result else {
            // The read of the other kind, which would have followed, is repeated as well.
            for by in DueBy::ALL {
                let (again, next) = (self.now_by(now, by).wall + RETRY_MS, self.mover.next(by));
                *next = Some(next.map_or(again, |next| next.min(again)));
            }
            return;
        };
        match what {
            DueRead::First => {
                rows.iter().for_each(|(key, _)| self.mover.expect(key));
                // Read the other kind next.
                if by == DueBy::Wall {
                    self.read_due(DueBy::Elapsed, DueRead::First);
                }
            }
            DueRead::Rows => self.move_rows(now, by, rows),
        }
    }

    fn move_rows(&mut self, now: Now, by: DueBy, rows: Vec<(String, Bytes)>) {
        let time = self.now_by(now, by).wall;
        let full = rows.len() >= MOVE_ROWS_MAX;
        let (mut moves, mut bytes) = (Vec::new(), 0);
        for (key, value) in rows {
            let later = keys::due_time(&key).filter(|at| *at > time);
            bytes += value.len();
            if later.is_some() || (bytes > MOVE_BYTES_MAX && !moves.is_empty()) {
                self.mover.expect(&key);
                break;
            }
            moves.push(match DueEvent::read(&key, &value) {
                Some(event) => DueMove::Append(event),
                None => DueMove::SetAside(key, value),
            });
        }
        if full && self.mover.known(by).is_none() {
            *self.mover.next(by) = Some(time);
        }
        if !moves.is_empty() && self.session.is_working() {
            self.commit_move(now, by, moves);
        }
    }

    fn commit_move(&mut self, now: Now, by: DueBy, moves: Vec<DueMove>) {
        self.mover.busy = true;
        let batch = Batch {
            nonce: self.prng.next(),
            now: now.wall,
            durability: Durability::Fsync,
            checks: moves.iter().flat_map(DueMove::checks).collect(),
            ops: moves.iter().flat_map(DueMove::ops).collect(),
        };
        self.requests.commit(PendingCommit::DueMove(by, moves), batch);
    }

    pub(crate) fn on_due_moved(&mut self, now: Now, by: DueBy, mut moves: Vec<DueMove>, outcome: &Outcome) {
        self.mover.busy = false;
        let Outcome::Refused(refusal) = outcome else {
            for one in moves {
                match one {
                    DueMove::Append(event) => self.handlers.on_new_events(&event.topic),
                    DueMove::SetAside(key, _) => self.requests.note(Note::DueSetAside { key }),
                    DueMove::Remove(_) => {}
                }
            }
            return;
        };
        let mut first = 0;
        let refused = moves.iter_mut().find_map(|one| {
            let at = refusal.check.checked_sub(first)?;
            let checks = one.checks().len();
            first += checks;
            (at < checks).then_some((one, at))
        });
        match refused {
            Some((one, 1)) => {
                if let DueMove::Append(event) = one {
                    *one = DueMove::Remove(event.clone());
                }
                self.commit_move(now, by, moves);
            }
            // Another mover was faster. Read the table again to see what is left.
            _ => *self.mover.next(by) = Some(Timestamp(0)),
        }
    }

    pub(crate) fn on_due_too_large(&mut self, now: Now, by: DueBy) {
        self.mover.busy = false;
        *self.mover.next(by) = Some(self.now_by(now, by).wall + RETRY_MS);
    }

    /// Stores the elapsed time again if the wall clock has been set since the last write: a restart would otherwise
    /// misjudge how long delays have waited.
    pub(crate) fn keep_elapsed(&mut self, now: Now) {
        if self.elapsed.is_outdated(now) {
            let ops = vec![self.elapsed.put(now)];
            self.queue_action(now, Action { checks: Vec::new(), ops, follow_up: FollowUp::Nothing });
        }
    }
}

/// The purpose of a read of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueRead {
    /// To find out when the first row is due.
    First,
    /// To move the rows that are due.
    Rows,
}
