//! Events that are sent by the clock.

use millrace_claims::{CatchUp, ScheduleSpec, Times, set_schedule_enabled};
use millrace_model::{Outcome, ScheduleRow, Space, keys};
use millrace_store::KeyRange;

use crate::error::{Result, SessionError};
use crate::imperative::out_event;
use crate::session::Session;
use crate::typed::{EventName, IntoOutgoing};

/// The most schedules that [`Session::schedules`] lists.
const SCHEDULES_MAX: usize = 10_000;
/// How often switching a schedule is attempted while it fires.
const SWITCH_TRIES: usize = 8;

/// Which event to send at which times. Sessions that have a schedule of the same name share it: each fire happens once.
#[derive(Clone, Debug)]
pub struct Schedule {
    spec: ScheduleSpec,
    event: EventName,
}

impl Schedule {
    /// Makes a schedule from five fields (minute, hour, day of month, month, weekday), a nickname (`@hourly`, `@daily`,
    /// `@weekly`, `@monthly`, `@yearly`), or an interval (`@every 90s`, `@every 1h30m`). Times are in UTC, unless
    /// [`Schedule::zone`] says otherwise.
    ///
    /// An interval fires at whole multiples of itself since the beginning of 1970, UTC: all sessions agree on the
    /// moments, and a restart moves nothing.
    pub fn cron(cron: &str, event: impl IntoOutgoing) -> Result<Schedule> {
        let event = event.into_outgoing()?.without_own_id()?.without_delay()?;
        let name = format!("{} {cron}", event.topic);
        let zone = "UTC".to_owned();
        Times::parse(&name, cron, &zone)?;
        let (sent, event) = (event.name, out_event(event));
        let catch_up = CatchUp::default();
        Ok(Schedule {
            spec: ScheduleSpec { name, cron: cron.to_owned(), zone, catch_up, jitter_ms: 0, event },
            event: sent,
        })
    }

    /// Names the schedule. Without this its name is its event type and its cron expression.
    #[must_use]
    pub fn named(mut self, name: &str) -> Schedule {
        name.clone_into(&mut self.spec.name);
        self
    }

    /// Sets a time zone of the IANA database, for example `Europe/Berlin`.
    pub fn zone(mut self, zone: &str) -> Result<Schedule> {
        Times::parse(&self.spec.name, &self.spec.cron, zone)?;
        zone.clone_into(&mut self.spec.zone);
        Ok(self)
    }

    /// Sets what happens to fires that were missed while no session ran. By default only the latest of them fires.
    #[must_use]
    pub fn catch_up(mut self, catch_up: CatchUp) -> Schedule {
        self.spec.catch_up = catch_up;
        self
    }

    /// Delays each fire by up to this much, by the same amount in every session.
    #[must_use]
    pub fn jitter_ms(mut self, jitter_ms: u64) -> Schedule {
        self.spec.jitter_ms = jitter_ms;
        self
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the event type that the schedule sends.
    pub fn event_name(&self) -> EventName {
        self.event
    }

    pub(crate) fn into_spec(self) -> ScheduleSpec {
        self.spec
    }
}

impl Session {
    /// Returns every schedule that any session of this namespace has registered, by name.
    pub fn schedules(&self) -> Result<Vec<(String, ScheduleRow)>> {
        let prefix = format!("{}/", self.namespace_name());
        let rows = self.store().scan(Space::Schedules, &KeyRange::prefix(&prefix), SCHEDULES_MAX)?;
        let named = rows.into_iter().map(|row| {
            let name = keys::unescaped(&row.key[prefix.len()..]).unwrap_or_else(|| row.key.clone());
            Ok((name, ScheduleRow::decode(&row.key, &row.value)?))
        });
        named.collect()
    }

    /// Switches a schedule off or on, in all sessions. A schedule that is switched on again counts from now.
    pub fn set_schedule_enabled(&self, name: &str, enabled: bool) -> Result<()> {
        let namespace = self.namespace_name();
        let key = keys::schedule(namespace, name);
        for _ in 0..SWITCH_TRIES {
            let Some(value) = self.state().row(Space::Schedules, &key)? else {
                return Err(SessionError::NoSuchSchedule(name.to_owned()));
            };
            let batch = set_schedule_enabled(namespace, name, &value, enabled, self.now(), self.draw())?;
            if let Outcome::Done(_) = self.commit_batch(batch)? {
                return Ok(());
            }
        }
        Err(SessionError::ScheduleBusy(name.to_owned()))
    }
}
