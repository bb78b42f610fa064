//! A commit: resolves the batches on the copy, places their record, and keeps at it until the outcome is known.

use millrace_journal::{JournalError, JournalReadLimit, Placed, Placing};
use millrace_model::{Batch, Outcome, Timestamp};
use millrace_store::{CommitVia, CopyPosition, FailureCause, Placement, RecordedChange, StoreError};

use crate::handle::{SharedHandle, Turn, closed};
use crate::lead::LeadState;
use crate::record::{self, RECORD_BYTES_MAX, RecordHead};

/// The most bytes of batches that are put into one record, by their estimate.
const BATCHES_BYTES_MAX: usize = millrace_model::BATCH_BYTES_MAX;

/// The lead row that a commit needs to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// This handle leads.
    Leader,
    /// If this handle has taken the lead, it still has it.
    Own,
    /// Nothing: the commit takes the lead, and is given up if somebody else places a record first.
    Open,
}

/// Whether a commit without changes still gets a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmptyRecord {
    Skip,
    Place,
}

/// The fate of the record of one attempt.
#[derive(Default)]
struct PlacingState {
    placed: Option<(CopyPosition, LeadState, usize)>,
    stopped: Option<Stop>,
}

/// Why a commit ends without an outcome.
pub(crate) enum Stop {
    /// The handle ends with this error.
    End(StoreError),
    /// This commit fails, the handle goes on.
    Refuse(StoreError),
    /// The journal is trimmed beyond the copy: the reason in a sentence.
    Stale(String),
    /// The engine has lost record `n`, or has another one in its place.
    Diverged { n: u64, found: String },
}

impl SharedHandle {
    /// Commits batches, in as many records as their size needs: a batch is always whole in one record.
    pub(crate) fn commit_batches(&self, batches: &[Batch], fence: Fence) -> Result<Vec<Outcome>, StoreError> {
        let max = millrace_model::BATCH_BYTES_MAX;
        if let Some(bytes) = batches.iter().map(Batch::bytes).find(|bytes| *bytes > max) {
            return Err(StoreError::TooLarge { bytes, max });
        }
        self.keep_interval();
        let mut turn = self.turn();
        turn.commit_began_ms = Some(self.clock.mono_ms());
        let mut outcomes = Vec::with_capacity(batches.len());
        let mut rest = batches;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(fitting(rest));
            match self.commit_in_turn(&mut turn, now, fence) {
                Ok(done) => outcomes.extend(done),
                Err(error) if outcomes.is_empty() => return Err(error),
                // Earlier batches have happened: the caller must not believe that nothing was written.
                Err(error) => return Err(StoreError::Poisoned(FailureCause::of(error))),
            }
            rest = later;
        }
        Ok(outcomes)
    }

    /// Waits until the last commit began long enough ago. A placing that takes longer than the interval is followed by
    /// the next one at once.
    pub(crate) fn keep_interval(&self) {
        let interval_ms = self.settings.commit_interval_ms;
        if interval_ms == 0 {
            return;
        }
        let Some(began_ms) = self.turn().commit_began_ms else { return };
        let rest_ms = interval_ms.saturating_sub(self.clock.mono_ms().saturating_sub(began_ms));
        if rest_ms > 0 && !self.is_closed() {
            self.clock.pause(std::time::Duration::from_millis(rest_ms));
        }
    }

    pub(crate) fn commit_in_turn(
        &self,
        turn: &mut Turn,
        batches: &[Batch],
        fence: Fence,
    ) -> Result<Vec<Outcome>, StoreError> {
        self.commit_fenced(turn, batches, fence, EmptyRecord::Skip)
    }

    /// Places a record without changes: followers see that the leader lives.
    pub(crate) fn beat(&self, turn: &mut Turn) -> Result<(), StoreError> {
        turn.commit_began_ms = Some(self.clock.mono_ms());
        self.commit_fenced(turn, &[], Fence::Leader, EmptyRecord::Place).map(drop)
    }

    fn commit_fenced(
        &self,
        turn: &mut Turn,
        batches: &[Batch],
        fence: Fence,
        empty: EmptyRecord,
    ) -> Result<Vec<Outcome>, StoreError> {
        for attempt in 0u32.. {
            self.refuse_ended()?;
            let CopyPosition { n, tip, .. } = turn.position;
            self.verify_after_absence(n, tip).map_err(|stop| self.stop(stop))?;
            self.refuse_unfenced(turn, fence)?;
            let (position, lead) = (turn.position, turn.lead.clone());
            let mut state = PlacingState::default();
            let via = self.copy.commit_via(batches, &mut |changes| {
                self.place_changes(position, &lead, empty, changes, &mut state)
            });
            match via {
                Ok(CommitVia::Committed { outcomes, copied }) => {
                    self.committed(turn, state, copied);
                    return Ok(outcomes);
                }
                Ok(CommitVia::NotPlaced) => {}
                // The copy failed before anything was placed: another server can do what this one was asked for.
                Err(StoreError::Unreadable(cause)) => {
                    self.condemn_damaged(&cause.to_string());
                    return self.refuse_ended().map(|()| Vec::new());
                }
                Err(error @ (StoreError::Poisoned(_) | StoreError::Outdated { .. })) => {
                    self.end_without_copy(error);
                    return self.refuse_ended().map(|()| Vec::new());
                }
                Err(error) => return Err(error),
            }
            if let Some(stop) = state.stopped {
                return Err(self.stop(stop));
            }
            // Somebody else has placed this number.
            if self.catch_up(turn)? == 0 {
                self.verify_position(turn)?;
                self.back_off(attempt)?;
            } else if fence == Fence::Open {
                return Ok(Vec::new());
            }
        }
        Err(closed())
    }

    /// Does what a request that was stopped means for the handle, and returns the error of the caller.
    pub(crate) fn stop(&self, stop: Stop) -> StoreError {
        match stop {
            Stop::End(error @ StoreError::Closed(_)) | Stop::Refuse(error) => error,
            Stop::End(error) => self.end(error),
            Stop::Diverged { n, found } => self.diverged(n, &found),
            Stop::Stale(why) => self.condemn("stale", &why),
        }
    }

    fn refuse_unfenced(&self, turn: &mut Turn, fence: Fence) -> Result<(), StoreError> {
        let is_fenced_out = match fence {
            Fence::Leader => !turn.lead.leads(),
            Fence::Own => turn.lead.own.is_some() && !turn.lead.leads(),
            Fence::Open => false,
        };
        if !is_fenced_out {
            return Ok(());
        }
        let error = SharedHandle::deposed_by(turn);
        // A handle that never led may take the lead later; one that lost it starts over.
        Err(if turn.lead.own.is_some() { self.end(error) } else { error })
    }

    fn committed(&self, turn: &mut Turn, state: PlacingState, copied: Result<(), StoreError>) {
        if let Some((position, lead, bytes)) = state.placed {
            (turn.position, turn.lead) = (position, lead);
            turn.term_seen = turn.term_seen.max(turn.lead.row().map_or(0, |row| row.term));
            turn.records_seen += 1;
            turn.bytes_seen += bytes as u64;
            self.heard(turn);
            self.with_status(|status| {
                status.placed_records += 1;
                status.placed_bytes += bytes as u64;
            });
        }
        match copied {
            Ok(()) => {}
            // The record is placed and its outcomes hold, but the copy could not follow.
            Err(StoreError::Unreadable(cause)) => {
                self.condemn_damaged(&cause.to_string());
            }
            Err(error) => {
                let text = format!("the local copy cannot follow the journal: {error}");
                self.end_without_copy(StoreError::Poisoned(FailureCause::from(text)));
            }
        }
        self.publish(turn);
    }

    /// Places changes that need nothing from the copy, which has failed, directly behind the known end of the journal.
    pub(crate) fn place_without_copy(
        &self,
        turn: &mut Turn,
        changes: &[RecordedChange],
    ) -> Result<(), StoreError> {
        let mut state = PlacingState::default();
        match self.place_changes(turn.position, &turn.lead, EmptyRecord::Place, changes, &mut state) {
            Placement::Placed(_) => {
                self.committed(turn, state, Ok(()));
                Ok(())
            }
            Placement::NothingToPlace | Placement::NotPlaced => match state.stopped {
                Some(stop) => Err(self.stop(stop)),
                None => {
                    let text =
                        "another server has placed a record first, and this one has no copy to follow it";
                    Err(StoreError::Busy(FailureCause::from(text)))
                }
            },
        }
    }

    fn place_changes(
        &self,
        position: CopyPosition,
        lead: &LeadState,
        empty: EmptyRecord,
        changes: &[RecordedChange],
        state: &mut PlacingState,
    ) -> Placement {
        let n = position.n + 1;
        if changes.is_empty() && empty == EmptyRecord::Skip {
            return match self.is_free(n) {
                Ok(true) => Placement::NothingToPlace,
                Ok(false) => Placement::NotPlaced,
                Err(stop) => {
                    state.stopped = Some(stop);
                    Placement::NotPlaced
                }
            };
        }
        let mut after = lead.clone();
        after.observe(changes);
        let term = after.row().map_or(0, |row| row.term);
        let time = Timestamp(self.clock.wall_ms());
        let (writer, nonce) = (self.writer_id, rand::random());
        let head = RecordHead { writer, nonce, n, term, time, prev: position.tip };
        let (bytes, tip) = record::encode(&head, changes);
        if bytes.len() > RECORD_BYTES_MAX {
            let error = StoreError::TooLarge { bytes: bytes.len(), max: RECORD_BYTES_MAX };
            state.stopped = Some(Stop::Refuse(error));
            return Placement::NotPlaced;
        }
        let settles = self.publishing.settled_by(changes);
        let placing = Placing { n, prev: position.tip, tip, record: &bytes, settles: &settles };
        let began_ms = self.clock.mono_ms();
        match self.place_until_known(&placing) {
            Ok(true) => {
                self.prove_lead(began_ms);
                let position = CopyPosition { n, tip, ..position };
                state.placed = Some((position, after, bytes.len()));
                Placement::Placed(position)
            }
            Ok(false) => Placement::NotPlaced,
            Err(stop) => {
                state.stopped = Some(stop);
                Placement::NotPlaced
            }
        }
    }

    /// Places the record, and looks and tries again until it is known whether this record has the number. Waits as long
    /// as the engine is away, unless the handle is closed.
    fn place_until_known(&self, placing: &Placing<'_>) -> Result<bool, Stop> {
        for attempt in 0u32.. {
            self.refuse_trimmed(placing.n)?;
            // As late as possible: the requests just before may be those that an engine has failed over in.
            self.verify_after_absence(placing.n - 1, placing.prev)?;
            let is_ours = match self.journal.place(placing) {
                Ok(Placed::Yes) => true,
                // The answer to an earlier attempt may have been lost.
                Ok(Placed::Taken) => self.read_one(placing.n)?.is_some_and(|found| found == placing.record),
                Err(JournalError::Unknown(cause)) => {
                    self.unreachable(&cause.to_string());
                    match self.read_one(placing.n)? {
                        Some(found) => found == placing.record,
                        None => {
                            self.back_off(attempt).map_err(Stop::End)?;
                            continue;
                        }
                    }
                }
                Err(JournalError::Refused(cause)) => return Err(Stop::End(refused(&cause.to_string()))),
                Err(JournalError::Unfit(text)) => return Err(Stop::End(refused(&text))),
            };
            self.reachable();
            // A process that slept may have used a number that was deleted meanwhile: nobody would ever read it.
            self.refuse_trimmed(placing.n)?;
            return Ok(is_ours);
        }
        Err(Stop::End(closed()))
    }

    /// Returns whether nobody has placed this number, so that the copy is at the journal's end.
    fn is_free(&self, n: u64) -> Result<bool, Stop> {
        let is_free = self.read_one(n)?.is_none();
        self.reachable();
        self.refuse_trimmed(n)?;
        Ok(is_free)
    }

    /// Returns the record with this number, if there is one. Waits as long as the engine is away.
    pub(crate) fn read_one(&self, n: u64) -> Result<Option<bytes::Bytes>, Stop> {
        let limit = JournalReadLimit { records_max: 1, bytes_max: 1 };
        let found = self.read_until_known(n, limit).map_err(Stop::End)?;
        Ok(found.into_iter().find(|(found, _)| *found == n).map(|(_, bytes)| bytes))
    }

    /// Reads until the engine answers. Does not call [`SharedHandle::reachable`]: an engine that can be read but places
    /// nothing is away for a leader.
    pub(crate) fn read_until_known(
        &self,
        from: u64,
        limit: JournalReadLimit,
    ) -> Result<Vec<(u64, bytes::Bytes)>, StoreError> {
        let began_ms = self.clock.mono_ms();
        for attempt in 0u32.. {
            let asked_ms = self.clock.mono_ms();
            match self.journal.read(from, limit) {
                Ok(found) => {
                    if attempt > 0 {
                        self.was_unreadable(asked_ms.saturating_sub(began_ms));
                    }
                    return Ok(found);
                }
                Err(JournalError::Unknown(cause)) => {
                    self.unreachable(&cause.to_string());
                    self.back_off(attempt)?;
                }
                Err(JournalError::Refused(cause)) => return Err(refused(&cause.to_string())),
                Err(JournalError::Unfit(text)) => return Err(refused(&text)),
            }
        }
        Err(closed())
    }

    pub(crate) fn deposed_by(turn: &Turn) -> StoreError {
        StoreError::Deposed(FailureCause::from(turn.lead.leader()))
    }
}

/// Returns the error of an engine that will not get better by trying again.
pub(crate) fn refused(text: &str) -> StoreError {
    StoreError::Poisoned(FailureCause::from(format!("the engine of the shared store refuses: {text}")))
}

/// Returns how many of the batches go into the next record, at least one.
fn fitting(batches: &[Batch]) -> usize {
    let mut bytes = 0;
    let fit = batches.iter().take_while(|batch| {
        bytes += batch.bytes();
        bytes <= BATCHES_BYTES_MAX
    });
    fit.count().max(1)
}
