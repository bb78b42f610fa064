//! A guest with its loop: makes every call of the engine and compares it with the record.

use millrace_reactor::{
    HandleLimits, HandleNumber, HandleTable, LoopLimits, MonoNs, OUTPUT_BYTES_MIN, Readiness, Request,
    SysLoop, Written, ZabiError,
};

use super::poller::{Opening, Round, WorldPoller};
use super::record::{Handle, Outcome, Record, violation};
use super::requests::{NUMBER_MAX, Stream};
use super::sabotage::{Sabotage, Saboteur};
use crate::check::Violation;
use crate::dice::Dice;

pub(super) struct Guest {
    saboteur: Saboteur,
    pub(super) sys_loop: SysLoop,
    pub(super) poller: WorldPoller,
    handles: HandleTable<Opening>,
    openings: Opening,
    pub(super) record: Record,
    pub(super) stream: Stream,
    /// The bytes of the write whose POLL is waiting.
    pub(super) waiting: Option<Vec<u8>>,
    /// A round of reports that the engine has not been told yet, and whether something has changed since.
    late: Option<Round>,
    is_late_stale: bool,
    /// When the shell next looks at what is ready.
    pub(super) look_at: Option<u64>,
    /// Registrations fail until then.
    pub(super) failing_until: u64,
    /// How often, in permille, the guest reads in its turn, and how often it polls.
    pub(super) reads: u64,
    pub(super) polls: u64,
    /// The last write was refused: now even a lazy guest reads.
    pub(super) is_refused: bool,
    /// Whether numbers of ended handles are given out again while they are still watched.
    reuses_watched: bool,
}

impl Guest {
    pub(super) fn new(dice: &mut Dice, sabotage: Option<Sabotage>) -> Guest {
        let limits = LoopLimits {
            watches_max: dice.between(4, 10) as usize,
            timers_max: dice.between(2, 6) as usize,
            write_bytes_max: 2048,
            output_bytes_max: OUTPUT_BYTES_MIN + dice.below(500) as usize,
            frame_bytes_max: OUTPUT_BYTES_MIN + 24,
        };
        let saboteur = Saboteur::new(sabotage);
        // A lazy guest polls rarely and reads only when it must: its queue of replies is full most of the time.
        let is_lazy = dice.chance(300);
        let number_max = HandleNumber::new(NUMBER_MAX).unwrap_or(millrace_reactor::FIRST_HANDLE);
        Guest {
            sys_loop: SysLoop::new(saboteur.limits(limits)),
            saboteur,
            poller: WorldPoller::new(dice.chance(500), sabotage),
            handles: HandleTable::new(HandleLimits { handles_max: 7, number_max }),
            openings: 0,
            record: Record::new(limits),
            stream: Stream::default(),
            waiting: None,
            late: None,
            is_late_stale: false,
            look_at: None,
            failing_until: 0,
            reads: if is_lazy { 0 } else { dice.between(100, 600) },
            polls: if is_lazy { 60 } else { 450 },
            is_refused: false,
            reuses_watched: dice.chance(500),
        }
    }

    pub(super) fn open_handle(&mut self, dice: &mut Dice) -> Option<HandleNumber> {
        let (sys_loop, reuses) = (&self.sys_loop, self.reuses_watched);
        self.openings += 1;
        let opening = self.openings;
        let number = self.handles.open(opening, |number| !reuses && sys_loop.watches_handle(number)).ok()?;
        let is_computed = dice.chance(500);
        self.poller.open(number, opening, is_computed);
        let handle = Handle { opening, is_computed, state: Readiness::NONE };
        self.record.handles.insert(number.get(), handle);
        Some(number)
    }

    pub(super) fn any_handle(&self, dice: &mut Dice) -> Option<HandleNumber> {
        let open: Vec<HandleNumber> = self.handles.iter().map(|(number, _)| number).collect();
        dice.pick(&open).copied()
    }

    pub(super) fn end_handle(&mut self, number: HandleNumber) {
        self.handles.close(number);
        if self.saboteur.tells_ended() {
            self.sys_loop.end_handle(number, &mut self.poller);
        }
        self.poller.ended(number);
        self.record.handle_ended(number.get());
        self.is_late_stale = true;
    }

    pub(super) fn set_state(&mut self, number: HandleNumber, state: Readiness) {
        if let Some(token) = self.poller.set(number, state) {
            self.sys_loop.set_readiness(token, state);
        }
        self.record.state_changed(number.get(), state);
        self.is_late_stale = true;
    }

    pub(super) fn interrupt(&mut self) {
        self.sys_loop.interrupt();
        self.record.is_interrupted = true;
    }

    pub(super) fn request(&mut self, request: Request) {
        self.stream.request_as(request, self.saboteur.request(request));
    }

    /// Writes the next bytes of the stream. Returns the result of the write.
    pub(super) fn write(&mut self, now: u64, dice: &mut Dice) -> Result<Written, Violation> {
        let follows_cut = self.record.begins_whole();
        let bytes = self.stream.next_write(dice, follows_cut);
        self.see(now);
        self.saboteur.reorder_ready(&mut self.sys_loop, &self.poller, &self.record);
        let written = self.saboteur.write(&mut self.sys_loop, now, &bytes, follows_cut, &mut self.poller);
        let must = match self.record.write_begins() {
            Some(refused) => refused,
            None => self.execute(bytes.len()),
        };
        match written {
            Written::Waiting if must == Outcome::Poll => self.waiting = Some(bytes),
            Written::Waiting => self.record.check_returned(must, None)?,
            Written::Returned(result) => self.returned(must, bytes.len(), result, dice)?,
        }
        self.interfere();
        self.check()?;
        Ok(written)
    }

    /// A write that is too long, or that comes while a POLL waits, must change nothing.
    pub(super) fn futile_write(&mut self, now: u64) -> Result<(), Violation> {
        self.see(now);
        let bytes = vec![0; self.record.limits.write_bytes_max + 1];
        let written = self.sys_loop.write(MonoNs(now), &bytes, &mut self.poller);
        let code = if self.waiting.is_some() { ZabiError::Again } else { ZabiError::Bounds };
        if written != Written::Returned(Err(code)) {
            return Err(violation("answered_once", format!("a write that is too long returns {written:?}")));
        }
        self.check()
    }

    /// The shell looks at what is ready, tells the engine, and continues the write whose POLL waits. Sometimes it tells
    /// the engine later. Returns the result of the write; `None` if the engine was not called.
    pub(super) fn look(
        &mut self,
        now: u64,
        dice: &mut Dice,
        is_calm: bool,
    ) -> Result<Option<Written>, Violation> {
        let Some(bytes) = self.waiting.take() else { return Ok(None) };
        let (round, is_fresh) = match self.late.take() {
            Some(round) => (round, !self.is_late_stale),
            None => (self.poller.round(dice, is_calm), true),
        };
        if is_fresh && !is_calm && dice.chance(100) {
            (self.late, self.is_late_stale, self.waiting) = (Some(round), false, Some(bytes));
            return Ok(None);
        }
        self.see(now);
        let opening = |report: &millrace_reactor::SourceReport| {
            Some((self.poller.opening(report.token)?, report.state))
        };
        let told: Vec<_> = round.reports.iter().filter_map(opening).collect();
        self.sys_loop.observe(&round.reports, round.coverage, &mut self.poller);
        let is_failing = self.poller.is_failing();
        self.record.told(&told, round.coverage, is_fresh, is_failing)?;
        self.saboteur.reorder_ready(&mut self.sys_loop, &self.poller, &self.record);
        let written = self.saboteur.resume(&mut self.sys_loop, now, &bytes, &mut self.poller, &self.record);
        match written {
            Written::Waiting => {
                self.waiting = Some(bytes);
                self.record.goes_on_waiting(self.next_deadline())?;
            }
            Written::Returned(result) => self.returned(Outcome::Poll, bytes.len(), result, dice)?,
        }
        self.interfere();
        self.check()?;
        Ok(Some(written))
    }

    /// Returns when the shell must look again at the latest.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.saboteur.deadline(&self.sys_loop, &self.record)
    }

    /// Reads once, with a buffer of random size. Returns whether there was something to read.
    pub(super) fn read(&mut self, dice: &mut Dice) -> Result<bool, Violation> {
        let mut buffer = vec![0; dice.between(1, 120) as usize];
        let Ok(count) = self.sys_loop.read(&mut buffer) else { return Ok(false) };
        self.record.unread_bytes = self.record.unread_bytes.saturating_sub(count);
        if let Some(frame) = self.record.read(&buffer[..count])? {
            self.record.answer(&frame)?;
        }
        self.check()?;
        Ok(true)
    }

    /// The guest ends its loop: none of its registrations may stay with the poller.
    pub(super) fn close(&mut self) -> Result<(), Violation> {
        self.sys_loop.close(&mut self.poller);
        let left = (self.poller.registrations(), self.sys_loop.gauges());
        match left == (0, millrace_reactor::Gauges::default()) {
            true => Ok(()),
            false => Err(violation("engine_consistent", format!("a loop that ended leaves {left:?}"))),
        }
    }

    fn see(&mut self, now: u64) {
        self.record.now = self.record.now.max(now);
        self.poller.fail(now < self.failing_until);
    }

    fn execute(&mut self, bytes: usize) -> Outcome {
        self.record.execute_write(&mut self.stream, bytes, self.poller.is_failing())
    }

    /// The engine has returned from a write. If it answered a POLL, the guest reads everything at once: the record
    /// knows what a POLL had to report only as long as nothing has happened since.
    fn returned(
        &mut self,
        must: Outcome,
        bytes: usize,
        result: Result<usize, ZabiError>,
        dice: &mut Dice,
    ) -> Result<(), Violation> {
        let must = match must {
            Outcome::Poll => self.poll_answered(bytes, dice)?,
            other => other,
        };
        self.record.check_returned(must, Some(result))?;
        self.stream.advance(match result {
            Ok(consumed) => consumed,
            Err(ZabiError::Again) => 0,
            Err(_) => bytes,
        });
        Ok(())
    }

    fn poll_answered(&mut self, bytes: usize, dice: &mut Dice) -> Result<Outcome, Violation> {
        let mut frames = Vec::new();
        let mut read_bytes = 0;
        let mut buffer = vec![0; dice.between(16, 1500) as usize];
        while let Ok(count) = self.sys_loop.read(&mut buffer) {
            read_bytes += count;
            frames.extend(self.record.read(&buffer[..count])?);
        }
        if let Some(reply) = frames.get_mut(self.record.expected.len()) {
            self.saboteur.reply(reply, &self.record);
        }
        let mut frames = frames.iter();
        let missing = || violation("answered_once", "an answer is missing".into());
        for _ in 0..self.record.expected.len() {
            self.record.answer(frames.next().ok_or_else(missing)?)?;
        }
        self.record.poll_reply(frames.next().ok_or_else(missing)?)?;
        let must = self.execute(bytes);
        for frame in frames {
            self.record.answer(frame)?;
        }
        self.record.unread_bytes = self.record.unread_bytes.saturating_sub(read_bytes);
        Ok(must)
    }

    /// Lets the saboteur make its own requests, if the loop is between two frames and all replies were read.
    fn interfere(&mut self) {
        let gauges = self.sys_loop.gauges();
        let is_between = self.waiting.is_none()
            && !self.record.begins_whole()
            && self.stream.is_between_items()
            && (gauges.input_bytes, gauges.output_bytes) == (0, 0);
        if is_between {
            self.saboteur.interfere(&mut self.sys_loop, &mut self.poller, &self.record);
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.record.check_gauges(self.sys_loop.gauges())?;
        if let Some(token) = self.poller.used_twice {
            let detail = format!("{token:?} names two registrations");
            return Err(violation("only_what_is_watched", detail));
        }
        let consistent = self.sys_loop.check_invariants();
        consistent.map_err(|broken| violation("engine_consistent", broken.to_string()))
    }
}
