//! Everything that goes wrong without anybody's request: machines, processes, connections, clocks, the engine.

use millrace_store::CopyPosition;

use super::copies::CopyFault;
use super::hub::State;
use super::server::draw_shift;
use super::wire::Cut;
use super::{Happening, Writer};
use crate::fault::Fault;

/// Many times as long as any call takes when nothing goes wrong.
const CALM_MS_MAX: u64 = 1_000_000;
const FATE_EVERY_MS: u64 = 2_000;
/// How many records an engine loses at most.
const LOST_RECORDS_MAX: u64 = 8;

impl State {
    pub(super) fn fate(&mut self) {
        if self.calm {
            return;
        }
        for at in 0..self.servers.len() {
            self.fate_of(at);
        }
        let rates = self.plan.rates.clone();
        if self.dice.chance(rates.engine_away) {
            self.faults.add(Fault::EngineAway);
            let (cut, ms) = (self.draw_cut(), self.draw_absence_ms());
            self.note(&format!("the engine is away for {ms} ms: {cut:?}"));
            let until_ms = self.now_ms() + ms;
            self.servers.iter_mut().for_each(|server| server.cut = Some((cut, until_ms)));
        }
        if self.plan.loses_tail && self.dice.chance(rates.lose_tail) {
            self.lose_tail();
        }
        let at_ms = self.now_ms() + FATE_EVERY_MS;
        self.schedule.at(at_ms, Happening::Fate);
    }

    fn fate_of(&mut self, at: usize) {
        let (now_ms, rates) = (self.now_ms(), self.plan.rates.clone());
        let is_up = self.servers[at].handle.is_some() || self.servers[at].is_moving;
        if is_up && self.dice.chance(rates.kill) {
            self.faults.add(Fault::Kill);
            self.kill(at);
        }
        if is_up && self.dice.chance(rates.power_loss) {
            self.lose_power(at);
        }
        if is_up && self.dice.chance(rates.stop) {
            self.faults.add(Fault::Stop);
            let life = self.servers[at].life;
            self.schedule.at(now_ms, Happening::Stop { server: at, life });
        }
        if self.dice.chance(rates.freeze) {
            let ms = self.draw_absence_ms();
            self.freeze(at, ms);
        }
        // A leader that sleeps is more interesting than a follower.
        let sleep = if self.servers[at].bus.is_some() { 5 * rates.sleep } else { rates.sleep };
        if self.dice.chance(sleep) {
            let grace_ms = self.plan.settings.trim_grace_ms;
            let ms = self.dice.between(grace_ms, 3 * grace_ms);
            self.freeze(at, ms);
        }
        if self.dice.chance(rates.copy_fails) {
            let fault = [CopyFault::Full, CopyFault::Damaged, CopyFault::FullAfterPlacing];
            self.servers[at].disk.fault = Some(fault[self.dice.below(3) as usize]);
        }
        if self.dice.chance(rates.cut) {
            self.faults.add(Fault::Cut);
            let (cut, ms) = (self.draw_cut(), self.draw_absence_ms());
            self.note(&format!("s{at} is cut off for {ms} ms: {cut:?}"));
            self.servers[at].cut = Some((cut, now_ms + ms));
        }
        if self.dice.chance(rates.wall_step) && self.plan.skew_ms_max > 0 {
            self.faults.add(Fault::WallStep);
            let shift_ms = draw_shift(&mut self.dice, self.plan.skew_ms_max);
            self.note(&format!("the wall clock of s{at} is off by {shift_ms} ms"));
            self.servers[at].clock.set_wall_shift(shift_ms);
        }
    }

    fn draw_cut(&mut self) -> Cut {
        [Cut::Refused, Cut::BlackHole, Cut::HalfOpen][self.dice.below(3) as usize]
    }

    /// Shorter or longer than the time after which another server leads.
    fn draw_absence_ms(&mut self) -> u64 {
        let timeout_ms = self.plan.settings.lead_timeout_ms;
        self.dice.between(timeout_ms / 10, timeout_ms * 5 / 2)
    }

    fn freeze(&mut self, at: usize, ms: u64) {
        self.faults.add(Fault::Freeze);
        self.note(&format!("s{at} is stopped for {ms} ms"));
        let (now_ms, until_ms) = (self.now_ms(), self.now_ms() + ms);
        let with_clocks = self.plan.tells_time && self.dice.chance(300);
        let server = &mut self.servers[at];
        if with_clocks && server.stopped_until_ms <= now_ms {
            server.clock.suspend_until(until_ms);
            server.stopped_until_ms = until_ms;
        } else if !server.clock.is_suspended() {
            server.stopped_until_ms = server.stopped_until_ms.max(until_ms);
        }
    }

    fn kill(&mut self, at: usize) {
        self.note(&format!("s{at} is killed"));
        self.servers[at].disk.part_from_process();
        let pause_ms = self.dice.between(1, 8_000);
        self.end_process(at, pause_ms);
    }

    fn lose_power(&mut self, at: usize) {
        self.faults.add(Fault::PowerLoss);
        self.note(&format!("s{at} loses its power"));
        let sabotage = self.sabotage;
        let disk = &mut self.servers[at].disk;
        let has_lost = disk.lose_power(sabotage);
        let is_ours = disk.position().is_none_or(|position| self.truth.has(position.n, position.tip));
        if has_lost {
            self.faults.add(Fault::CopyShortened);
        }
        if is_ours {
            // The copy does not hold lost records any more: nobody can notice by it.
            self.truth.noticed(at);
        }
        let pause_ms = self.dice.between(500, 15_000);
        self.end_process(at, pause_ms);
    }

    /// The engine fails over to a replica that has not got the newest records yet.
    fn lose_tail(&mut self) {
        let (head, _) = self.truth.head();
        let lowest = self.engine.may_lose_from().max(self.truth.may_lose_from());
        let lowest = lowest.max((head + 1).saturating_sub(LOST_RECORDS_MAX)).max(1);
        if lowest > head {
            return;
        }
        let from = self.dice.between(lowest, head);
        self.faults.add(Fault::TailLost);
        self.note(&format!("the engine loses records {from} to {head}"));
        let copies: Vec<Option<CopyPosition>> =
            self.servers.iter().map(|server| server.disk.position()).collect();
        self.engine.lose_from(from, self.truth.tip_of(from - 1));
        // Connections to an engine that fails over are broken, and requests on their way are lost.
        self.servers.iter_mut().for_each(|server| server.is_reset = true);
        let verdict = self.truth.lose_from(from, &copies);
        self.require(verdict);
    }

    /// Ends everything that goes wrong.
    pub(super) fn calm_down(&mut self) {
        let now_ms = self.now_ms();
        self.calm = true;
        self.over_ms = now_ms + CALM_MS_MAX;
        self.note("calm");
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            server.cut = None;
            server.stopped_until_ms = 0;
            server.clock.resume();
            let writer = Writer { server: at, life: server.life };
            let (server, life) = (writer.server, writer.life);
            // Whatever waited for the server to wake up is done now, too.
            self.schedule.at(now_ms, Happening::Start { server });
            self.schedule.at(now_ms, Happening::Keep { server, life });
            self.schedule.at(now_ms, Happening::Supervise { server, life });
        }
    }
}
