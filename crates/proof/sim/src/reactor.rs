//! The world of `sys/loop`: guests with a loop each, on one virtual clock. Guests watch, arm, cancel, poll with few
//! slots, write frames that are split, glued, wrong and cut, and read their replies late. Their pollers report late, in
//! part, in any order and twice; handles end and their numbers are used again. After the calm every request has had its
//! answer.

mod execute;
mod guest;
mod poller;
mod record;
mod replies;
mod requests;
mod sabotage;

use millrace_reactor::{Readiness, Written};

use self::guest::Guest;
pub(crate) use self::record::INVARIANTS;
use self::record::violation;
pub use self::sabotage::Sabotage;
use crate::check::Violation;
use crate::dice::Dice;
use crate::fault::{Fault, FaultCounts};
use crate::schedule::Schedule;
use crate::trace::Trace;

/// Guests do not compose more while this many items wait to be written.
const STREAM_ITEMS_MAX: usize = 6;
/// The shell plans its next look at most this far ahead.
const WAIT_NS_MAX: u64 = 1_000_000_000;
/// More writes than any guest needs for what it has left.
const CALM_WRITES_MAX: u64 = 1000;

#[derive(Debug)]
enum Happening {
    Turn(usize),
    Look(usize),
    Fate,
}

pub(crate) struct ReactorWorld {
    now_ns: u64,
    /// Ordered by nanoseconds.
    schedule: Schedule<Happening>,
    dice: Dice,
    guests: Vec<Guest>,
    sabotage: Option<Sabotage>,
    pub(crate) trace: Trace,
    pub(crate) faults: FaultCounts,
    pub(crate) steps: u64,
}

impl ReactorWorld {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, print: bool) -> ReactorWorld {
        let mut dice = Dice::new(seed, "reactor world");
        let guests: Vec<Guest> = (0..dice.between(2, 4)).map(|_| Guest::new(&mut dice, sabotage)).collect();
        let mut schedule = Schedule::new();
        (0..guests.len()).for_each(|guest| schedule.at(0, Happening::Turn(guest)));
        schedule.at(0, Happening::Fate);
        let (trace, faults) = (Trace::new(print), FaultCounts::default());
        ReactorWorld { now_ns: 0, schedule, dice, guests, sabotage, trace, faults, steps: 0 }
    }

    pub(crate) fn simulated_ms(&self) -> u64 {
        self.now_ns / 1_000_000
    }

    pub(crate) fn run(&mut self, steps: u64) -> Result<(), Violation> {
        while self.steps < steps {
            let Some((at_ns, happening)) = self.schedule.pop() else { break };
            self.steps += 1;
            self.now_ns = at_ns;
            match happening {
                Happening::Turn(guest) => self.turn(guest)?,
                // A look that does not match `look_at` was replaced by one planned for an earlier moment.
                Happening::Look(guest) if self.guests[guest].look_at == Some(at_ns) => {
                    self.guests[guest].look_at = None;
                    self.look(guest)?;
                }
                Happening::Look(_) => {}
                Happening::Fate => self.fate()?,
            }
        }
        self.note("calm");
        (0..self.guests.len()).try_for_each(|guest| self.calm(guest))
    }

    fn turn(&mut self, guest: usize) -> Result<(), Violation> {
        self.turn_of(guest)?;
        let pause_ns = if self.dice.chance(20) { 2_000_000 } else { 60_000 };
        let next = self.now_ns + self.dice.below(pause_ns);
        self.schedule.at(next, Happening::Turn(guest));
        Ok(())
    }

    fn turn_of(&mut self, at: usize) -> Result<(), Violation> {
        let (guest, dice) = (&mut self.guests[at], &mut self.dice);
        if dice.chance(5) {
            self.faults.add(Fault::Refused);
            return guest.futile_write(self.now_ns);
        }
        if guest.waiting.is_some() {
            return Ok(());
        }
        let reads = if guest.is_refused { guest.reads.max(300) } else { guest.reads };
        if dice.chance(reads) {
            for _ in 0..dice.between(1, 6) {
                guest.read(dice)?;
            }
        }
        if dice.chance(3) {
            guest.close()?;
            *guest = Guest::new(dice, self.sabotage);
            self.faults.add(Fault::Stop);
            self.note(&format!("g{at} ends its loop"));
            return Ok(());
        }
        if guest.stream.items.len() < STREAM_ITEMS_MAX {
            for _ in 0..dice.between(1, 3) {
                let request = requests::any_request(dice, self.now_ns, guest.polls);
                if dice.chance(100) {
                    self.faults.add(Fault::BadFrame);
                    guest.stream.wrong(dice, request);
                } else {
                    guest.request(request);
                }
            }
        }
        self.write(at)
    }

    fn write(&mut self, at: usize) -> Result<(), Violation> {
        // Callers read their clocks at different moments.
        let late_ns = if self.dice.chance(50) { self.dice.below(5_000) } else { 0 };
        let written = self.guests[at].write(self.now_ns.saturating_sub(late_ns), &mut self.dice)?;
        self.guests[at].is_refused = matches!(written, Written::Returned(Err(_)));
        self.note(&format!("g{at} writes: {written:?}"));
        match written {
            Written::Waiting => self.plan_look(at, self.now_ns),
            Written::Returned(Err(_)) => self.faults.add(Fault::Refused),
            Written::Returned(Ok(_)) => {}
        }
        Ok(())
    }

    fn look(&mut self, at: usize) -> Result<(), Violation> {
        let looked = self.guests[at].look(self.now_ns, &mut self.dice, false)?;
        if self.guests[at].waiting.is_none() {
            self.note(&format!("g{at} POLL ends: {looked:?}"));
            return Ok(());
        }
        let Some(_) = looked else {
            self.faults.add(Fault::LateReport);
            let later = self.now_ns + self.dice.below(200_000);
            self.plan_look(at, later);
            return Ok(());
        };
        let deadline = self.guests[at].next_deadline();
        if let Some(deadline) = deadline.filter(|deadline| *deadline < self.now_ns + WAIT_NS_MAX) {
            let wake = match self.dice.below(6) {
                0 => deadline.saturating_sub(1).max(self.now_ns + 1),
                1 => deadline + self.dice.below(400_000),
                _ => deadline,
            };
            self.plan_look(at, wake);
        }
        Ok(())
    }

    fn plan_look(&mut self, at: usize, when_ns: u64) {
        let guest = &mut self.guests[at];
        if guest.waiting.is_some() && guest.look_at.is_none_or(|planned| when_ns < planned) {
            guest.look_at = Some(when_ns);
            self.schedule.at(when_ns, Happening::Look(at));
        }
    }

    /// Draws an event that happens to a guest from outside.
    fn fate(&mut self) -> Result<(), Violation> {
        let at = self.dice.below(self.guests.len() as u64) as usize;
        let (guest, dice) = (&mut self.guests[at], &mut self.dice);
        let handle = guest.any_handle(dice);
        match (dice.below(40), handle) {
            (0..24, Some(handle)) => {
                // Most handles are ready most of the time, so that they compete.
                let bits = if dice.chance(400) { dice.below(16) } else { dice.below(4) };
                let state = Readiness::from_bits(bits as u32).unwrap_or_default();
                guest.set_state(handle, state);
                self.note(&format!("g{at} handle {} is {state:?}", handle.get()));
            }
            (24..26, Some(handle)) => {
                guest.end_handle(handle);
                self.faults.add(Fault::HandleEnded);
                self.note(&format!("g{at} handle {} ends", handle.get()));
            }
            (26..28, _) => {
                guest.interrupt();
                self.faults.add(Fault::Interrupted);
            }
            (28, _) => {
                guest.failing_until = self.now_ns + dice.below(1_000_000);
                self.faults.add(Fault::NoSpace);
            }
            (29, _) => {
                if let Some(token) = guest.poller.old_token(dice) {
                    guest.sys_loop.set_readiness(token, Readiness::ALL);
                }
            }
            _ => {
                guest.open_handle(dice);
            }
        }
        let soon = self.now_ns + self.dice.below(50_000);
        self.plan_look(at, soon);
        let next = self.now_ns + self.dice.below(150_000);
        self.schedule.at(next, Happening::Fate);
        Ok(())
    }

    /// The guest reads everything, writes what it has left, and ends its loop.
    fn calm(&mut self, at: usize) -> Result<(), Violation> {
        self.guests[at].failing_until = 0;
        for _ in 0..CALM_WRITES_MAX {
            let (guest, dice) = (&mut self.guests[at], &mut self.dice);
            self.now_ns += 1000;
            if guest.waiting.is_some() {
                guest.interrupt();
                guest.look(self.now_ns, dice, true)?;
            }
            while guest.read(dice)? {}
            if guest.stream.is_empty() && guest.waiting.is_none() {
                break;
            }
            if guest.waiting.is_none() {
                guest.write(self.now_ns, dice)?;
            }
        }
        let guest = &mut self.guests[at];
        if !guest.record.expected.is_empty() || !guest.stream.is_empty() || !guest.record.part.is_empty() {
            let left = (&guest.record.expected, &guest.stream.items);
            return Err(violation("answered_once", format!("in the end without an answer: {left:?}")));
        }
        guest.close()
    }

    fn note(&mut self, line: &str) {
        let line = format!("{:>9} {line}", self.now_ns);
        self.trace.note(self.now_ns / 1_000_000, &line);
    }
}
