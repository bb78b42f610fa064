//! Schedules: when they fire, and that each fire happens once. The schedule's row in the store decides: a fire is a
//! change of that row, and an event whose id is derived from the fire's time. So of many sessions one wins, and the
//! others see it.

use bytes::Bytes;
use millrace_model::{
    Check, EVENT_BYTES_MAX, Lineage, Mono, Namespace, Now, Op, ScheduleRow, Space, Timestamp, keys, never,
};

use crate::commits::action::{Action, FollowUp};
use crate::commits::action_queue::ACTION_BYTES_MAX;
use crate::commits::batch_builder::derived_id;
use crate::commits::event_writer::append;
use crate::interface::effect::Note;
use crate::interface::error::SpecError;
use crate::interface::spec::{CatchUp, OutEvent, ScheduleSpec};
use crate::schedules::cron::{NEVER_YEARS, Times};
use crate::worker::Worker;

/// The header of a fire's event with the time it was planned for, in milliseconds since 1970. Jitter, a late session
/// and catching up make the event itself later than that.
pub const PLANNED_AT: &str = "x-planned-at";

/// Missed fires that are made up for in one action; fewer if their events are large.
const FIRES_PER_ACTION_MAX: usize = 100;
/// Besides its event, the first fire also writes its topic's row.
const TOPIC_ROW_BYTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Schedule {
    spec: ScheduleSpec,
    /// The key of the schedule's row.
    key: String,
    times: Times,
    /// The last call of `times.next` and its result: a fire asks whether it is the latest one, and then for its
    /// successor, which is the same call.
    cached_next: Option<(Timestamp, Option<Timestamp>)>,
    /// The schedule's row as last seen, and its bytes for the check.
    row: Option<(ScheduleRow, Bytes)>,
    /// The row differs from this session's schedule, because another session changed it: this session does not fire it.
    foreign: bool,
    /// The planned time of the next fire, and when it happens, jitter included.
    next: Option<(Timestamp, Timestamp)>,
    /// The time of the run that somebody has asked for, if this session is to make it.
    run: Option<Timestamp>,
    /// An action about this schedule is under way.
    busy: bool,
    /// Fires in one action, at most [`FIRES_PER_ACTION_MAX`].
    fires_max: usize,
}

impl Schedule {
    pub(crate) fn new(namespace: &Namespace, spec: ScheduleSpec) -> Result<Schedule, SpecError> {
        let times = Times::parse(&spec.name, &spec.cron, &spec.zone)?;
        // Any start will do: an expression that never fires within so many years from one time never does from another.
        if times.next(Timestamp(4_070_908_800_000)).is_none() {
            let (name, cron) = (spec.name, spec.cron);
            return Err(SpecError::NeverFires { name, cron, years: NEVER_YEARS });
        }
        let bytes = planned(&spec.event, Timestamp(u64::MAX)).body(Lineage::default()).bytes();
        if bytes > EVENT_BYTES_MAX {
            return Err(SpecError::EventTooLarge { name: spec.name, bytes, limit: EVENT_BYTES_MAX });
        }
        let fires_max = (ACTION_BYTES_MAX / (bytes + TOPIC_ROW_BYTES)).clamp(1, FIRES_PER_ACTION_MAX);
        let key = keys::schedule(namespace, &spec.name);
        Ok(Schedule {
            spec,
            key,
            times,
            cached_next: None,
            row: None,
            foreign: false,
            next: None,
            run: None,
            busy: false,
            fires_max,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// The clock was set back before the fire was committed: the schedule fires when its time has come again.
    pub(crate) fn on_fire_postponed(&mut self) {
        self.busy = false;
    }

    /// The schedule's next fire cannot be written: leaves the schedule alone until its row is read again.
    pub(crate) fn on_fire_failed(&mut self) {
        self.busy = false;
        self.next = None;
        self.run = None;
    }

    fn next_after(&mut self, at: Timestamp) -> Option<Timestamp> {
        match self.cached_next {
            Some((after, next)) if after == at => next,
            _ => {
                let answer = self.times.next(at);
                self.cached_next = Some((at, answer));
                answer
            }
        }
    }

    fn matches_spec(&self, row: &ScheduleRow) -> bool {
        let ScheduleSpec { cron, zone, event, .. } = &self.spec;
        row.cron == *cron && row.zone == *zone && row.event_type == event.topic.as_str()
    }

    fn fresh_row(&self, now: Timestamp, old: Option<&ScheduleRow>) -> ScheduleRow {
        ScheduleRow {
            cron: self.spec.cron.clone(),
            zone: self.spec.zone.clone(),
            event_type: self.spec.event.topic.as_str().to_owned(),
            enabled: old.is_none_or(|old| old.enabled),
            last: now,
            fires: old.map_or(0, |old| old.fires),
            fired: old.and_then(|old| old.fired),
            run: old.and_then(|old| old.run),
        }
    }

    /// The jitter of a fire. All sessions compute the same, so it does not matter which of them fires.
    fn jitter_ms(&self, at: Timestamp) -> u64 {
        let name = self.spec.name.bytes();
        let hash = name.fold(at.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        if self.spec.jitter_ms == 0 { 0 } else { (hash ^ hash >> 32) % (self.spec.jitter_ms + 1) }
    }

    fn set_row(&mut self, row: ScheduleRow, raw: Bytes) {
        self.foreign = !self.matches_spec(&row);
        let fires = row.enabled && !self.foreign;
        let next = if fires { self.next_after(row.last) } else { None };
        self.next = next.map(|at| (at, at + self.jitter_ms(at)));
        // A schedule that is switched off is run as well: whoever asks for a run knows that.
        self.run = row.run.filter(|_| !self.foreign);
        self.row = Some((row, raw));
    }

    /// Returns the fires to make now, and the time up to which the schedule is then done.
    fn due(&mut self, now: Timestamp, grace_ms: u64) -> Option<(Vec<Timestamp>, Timestamp)> {
        let (first, happens) = self.next?;
        if now < happens {
            return None;
        }
        let second = self.next_after(first);
        let ready = |at: &Timestamp| *at + self.jitter_ms(*at) <= now;
        match self.spec.catch_up {
            CatchUp::One => {
                let latest = self.times.latest(first, second, now).filter(ready).unwrap_or(first);
                Some((vec![latest], latest))
            }
            CatchUp::All => {
                let fires = self.fires_from(first, ready);
                let last = fires.last().copied()?;
                Some((fires, last))
            }
            CatchUp::None => {
                // Fires older than the grace time were missed; counting goes on from the newest of them.
                let before = now.saturating_sub(grace_ms).saturating_sub(1);
                let missed = self.times.latest(first, second, before);
                let first = match missed {
                    Some(missed) => self.times.next(missed),
                    None => Some(first),
                };
                let fires = first.map_or_else(Vec::new, |first| self.fires_from(first, ready));
                let last = fires.last().copied().or(missed)?;
                Some((fires, last))
            }
        }
    }

    fn fires_from(&self, first: Timestamp, ready: impl Fn(&Timestamp) -> bool) -> Vec<Timestamp> {
        let fires = std::iter::successors(Some(first), |at| self.times.next(*at));
        fires.take_while(ready).take(self.fires_max).collect()
    }
}

/// The event of one fire.
fn planned(event: &OutEvent, at: Timestamp) -> OutEvent {
    let mut event = event.clone();
    event.headers.get_or_insert_default().insert(PLANNED_AT.to_owned(), at.0.to_string());
    event
}

impl Worker {
    /// Applies the rows in the store, at the start and at every refresh.
    pub(crate) fn on_schedule_rows(&mut self, now: Now, rows: &[(String, Bytes)]) {
        for at in 0..self.schedules.len() {
            if self.schedules[at].busy {
                continue;
            }
            let key = &self.schedules[at].key;
            let found = rows.iter().find(|(found, _)| found == key).map(|(_, value)| value);
            self.on_schedule_row(now, at, found);
        }
    }

    fn on_schedule_row(&mut self, now: Now, at: usize, found: Option<&Bytes>) {
        // Usually nothing has changed, and the next fire is known.
        let known = self.schedules[at].row.as_ref().filter(|_| self.schedules[at].next.is_some());
        if known.is_some_and(|(_, raw)| Some(raw) == found) {
            return;
        }
        let key = self.schedules[at].key.clone();
        let row = found.map(|value| ScheduleRow::decode(&key, value));
        let starting = self.schedules[at].row.is_none();
        let schedule = &mut self.schedules[at];
        match row {
            Some(Ok(row)) if schedule.matches_spec(&row) || !starting => {
                let was_foreign = schedule.foreign;
                schedule.set_row(row, found.cloned().unwrap_or_default());
                if schedule.foreign && !was_foreign {
                    let reason = "another session gave it another time or event".to_owned();
                    self.requests.note(Note::ScheduleSkipped { schedule: at, reason });
                }
            }
            Some(Err(error)) => {
                schedule.next = None;
                schedule.run = None;
                let reason = error.to_string();
                self.requests.note(Note::ScheduleSkipped { schedule: at, reason });
            }
            // The schedule is new, or the session that starts now brings it with a new time or event.
            row => {
                let old = row.and_then(Result::ok);
                let fresh = schedule.fresh_row(now.wall, old.as_ref());
                schedule.busy = true;
                let check = match found {
                    Some(value) => Check::Equals { space: Space::Schedules, key, value: value.clone() },
                    None => Check::Absent { space: Space::Schedules, key },
                };
                let action = self.schedule_action(at, check, fresh, Vec::new(), Vec::new());
                self.queue_action(now, action);
            }
        }
    }

    fn schedule_action(
        &self,
        at: usize,
        check: Check,
        row: ScheduleRow,
        mut ops: Vec<Op>,
        fires: Vec<Timestamp>,
    ) -> Action {
        let key = self.schedules[at].key.clone();
        ops.push(Op::Put { space: Space::Schedules, key, value: row.encode() });
        let follow_up = FollowUp::Fired { schedule: at, row, at: fires };
        Action { checks: vec![check], ops, follow_up }
    }

    pub(crate) fn fire_schedules(&mut self, now: Now) {
        for at in 0..self.schedules.len() {
            let schedule = &mut self.schedules[at];
            if schedule.busy {
                continue;
            }
            if let Some(asked) = schedule.run.filter(|asked| *asked <= now.wall) {
                self.run_once(now, at, asked);
                continue;
            }
            if schedule.next.is_none_or(|(_, happens)| happens > now.wall) {
                continue;
            }
            let grace_ms = self.config.session_ttl_ms;
            // Nothing is due if the jitter or the catch-up rule says so.
            let Some((fires, last)) = schedule.due(now.wall, grace_ms) else { continue };
            let Some((old, raw)) = schedule.row.clone() else {
                never!(self.broken, "schedule {:?} is due without a row", schedule.spec.name);
                continue;
            };
            self.fire(now, at, &old, raw, fires, last);
        }
    }

    /// Makes the fire that somebody has asked for. The planned fires go on as if there had been none.
    fn run_once(&mut self, now: Now, at: usize, asked: Timestamp) {
        let (namespace, Schedule { spec, key, row, .. }) = (&self.identity.namespace, &self.schedules[at]);
        let Some((old, raw)) = row.clone() else {
            never!(self.broken, "schedule {:?} is to be run without a row", spec.name);
            return;
        };
        // The number of fires so far distinguishes two runs that were asked for in the same millisecond.
        let parts = [namespace.as_str(), &spec.name, &asked.0.to_string(), &old.fires.to_string()];
        let (id, nonce) = (derived_id("schedule-run", &parts), self.prng.next());
        let event = planned(&spec.event, asked);
        let ops = append(namespace, self.topics.known(), &event, id, Default::default(), nonce).to_vec();
        let check = Check::Equals { space: Space::Schedules, key: key.clone(), value: raw };
        let row = ScheduleRow { run: None, fires: old.fires + 1, fired: Some(asked), ..old };
        self.schedules[at].busy = true;
        let action = self.schedule_action(at, check, row, ops, vec![asked]);
        self.queue_action(now, action);
    }

    fn fire(
        &mut self,
        now: Now,
        at: usize,
        old: &ScheduleRow,
        raw: Bytes,
        fires: Vec<Timestamp>,
        last: Timestamp,
    ) {
        let (namespace, Schedule { spec, key, .. }) = (&self.identity.namespace, &self.schedules[at]);
        let fired = fires.last().copied().or(old.fired);
        let row = ScheduleRow { last, fires: old.fires + fires.len() as u64, fired, ..old.clone() };
        let mut ops = Vec::new();
        for fire in &fires {
            let parts = [namespace.as_str(), &spec.name, &fire.0.to_string()];
            let (id, nonce) = (derived_id("schedule", &parts), self.prng.next());
            let event = planned(&spec.event, *fire);
            ops.extend(append(namespace, self.topics.known(), &event, id, Default::default(), nonce));
        }
        let check = Check::Equals { space: Space::Schedules, key: key.clone(), value: raw };
        self.schedules[at].busy = true;
        let action = self.schedule_action(at, check, row, ops, fires);
        self.queue_action(now, action);
    }

    pub(crate) fn on_fired(&mut self, at: usize, row: ScheduleRow, fires: &[Timestamp]) {
        let schedule = &mut self.schedules[at];
        schedule.busy = false;
        let raw = row.encode();
        schedule.set_row(row, raw);
        for fire in fires {
            self.requests.note(Note::Fired { schedule: at, at: *fire });
        }
    }

    /// Another session changed the row first: it fired, disabled or replaced the schedule.
    pub(crate) fn on_fire_refused(&mut self, now: Now, at: usize, found: Option<&Bytes>) {
        self.schedules[at].busy = false;
        if found.is_none() {
            self.schedules[at].row = None;
        }
        self.on_schedule_row(now, at, found);
    }

    pub(crate) fn next_fire(&self, now: Now) -> Option<Mono> {
        let idle = self.schedules.iter().filter(|schedule| !schedule.busy);
        let times = idle
            .flat_map(|schedule| schedule.next.map(|(_, happens)| happens).into_iter().chain(schedule.run));
        times.map(|at| now.mono_at(at)).min()
    }
}
