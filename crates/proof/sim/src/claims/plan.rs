//! The settings that a seed draws for the world of workers: how they are set up, and what each handler does with each
//! event.

use std::collections::BTreeMap;

use millrace_claims::{
    CatchUp, From, HandlerSettings, HandlerSpec, OutEvent, ScheduleSpec, StateChanges, WorkerConfig,
};
use millrace_model::{Event, HandlerId, HandlerOrder, Identity, Intent, JsonText, Priority, TopicName};

use crate::dice::Dice;
use crate::plan::FAR_MS_MAX;

/// The topics that events are published to. Handlers of each topic send to the next; the last has no handler.
pub(crate) const TOPICS: [&str; 3] = ["first", "second", "third"];
pub(crate) const TICK: &str = "tick";

/// How far the clock of a process may be off.
pub(crate) const SKEW_MS_MAX: u64 = 1500;

pub(crate) struct Plan {
    pub(crate) config: WorkerConfig,
    pub(crate) handlers: Vec<HandlerSpec>,
    pub(crate) schedules: Vec<ScheduleSpec>,
    pub(crate) processes: usize,
    /// Chances of things that go wrong, in permille of the steps.
    pub(crate) kill: u64,
    pub(crate) commit_fails: u64,
    pub(crate) look_fails: u64,
    pub(crate) wall_steps: u64,
    /// The wall clock is far off for a moment; only in worlds where steps are doubted.
    pub(crate) far_steps: u64,
    pub(crate) stops: u64,
    pub(crate) run_fails: u64,
    pub(crate) slow_runs: u64,
    pub(crate) commit_slow: u64,
    skewed: bool,
}

impl Plan {
    /// How far off the clock of the next process is.
    pub(crate) fn skew(&self, dice: &mut Dice) -> i64 {
        let most = SKEW_MS_MAX as i64;
        if self.skewed { dice.between(0, 2 * SKEW_MS_MAX) as i64 - most } else { 0 }
    }

    pub(crate) fn draw(seed: u64) -> Plan {
        let mut dice = Dice::new(seed, "claims plan");
        let mut often = |most: u64| if dice.chance(250) { 0 } else { dice.between(1, most) };
        let (kill, commit_fails, look_fails) = (often(8), often(8), often(60));
        let (wall_steps, stops, run_fails, slow_runs) = (often(5), often(4), often(200), often(80));
        let commit_slow = often(30);
        let settle_ms = if dice.chance(500) { dice.between(FAR_MS_MAX + 500, 4000) } else { 0 };
        let config = WorkerConfig {
            clock_settle_ms: settle_ms,
            event_claim_limit: dice.between(1, 12) as usize,
            max_events_per_iteration: dice.between(4, 40) as usize,
            event_claim_lease_ms: dice.between(400, 4000),
            event_max_attempts: dice.between(2, 6) as u32,
            event_backoff_base_ms: dice.between(10, 100),
            event_backoff_max_ms: dice.between(100, 1000),
            handler_concurrency: dice.between(1, 4) as usize,
            lease_renewal: dice.chance(300),
            ack_linger_ms: dice.between(0, 20),
            event_poll_interval_ms: dice.between(100, 1000),
            session_heartbeat_interval_ms: dice.between(500, 5000),
            refresh_interval_ms: dice.between(500, 5000),
            retention_interval_ms: if dice.chance(500) { 2000 } else { 0 },
            ..retention(seed)
        };
        let spec = |id: &str, topic: &str, priority| HandlerSpec {
            id: HandlerId::new(id).expect("a legal id"),
            topic: TopicName::new(topic).expect("a legal topic"),
            priority,
            from: From::Backlog,
            settings: limits(seed, id, config.event_claim_lease_ms),
        };
        let handlers = vec![
            spec("sim:one", TOPICS[0], 5),
            spec("sim:two", TOPICS[1], 0),
            spec("sim:also", TOPICS[0], -5),
            spec("sim:clock", TICK, 0),
        ];
        let catch_up = [CatchUp::One, CatchUp::All, CatchUp::None][dice.below(3) as usize];
        let schedules = vec![ScheduleSpec {
            name: "every minute".into(),
            cron: "* * * * *".into(),
            zone: "UTC".into(),
            catch_up,
            jitter_ms: dice.below(3) * 5000,
            event: OutEvent::new(TopicName::new(TICK).expect("a legal topic"), JsonText::null()),
        }];
        Plan {
            config,
            handlers,
            schedules,
            processes: dice.between(1, 4) as usize,
            kill,
            commit_fails,
            look_fails,
            wall_steps,
            far_steps: if settle_ms > 0 { 4 } else { 0 },
            stops,
            run_fails,
            slow_runs,
            commit_slow,
            skewed: dice.chance(500),
        }
    }
}

/// Half of the worlds that sweep remove finished events after a moment, the others keep them for a week. They sweep in
/// small slices, so that much can happen between two of them.
fn retention(seed: u64) -> WorkerConfig {
    let mut dice = Dice::new(seed, "claims retention");
    let week_ms = WorkerConfig::default().event_retention_ms;
    WorkerConfig {
        event_retention_ms: if dice.chance(500) { dice.between(20, 3000) } else { week_ms },
        retention_rows_max: dice.between(1, 12) as usize,
        hanging_handlers_max: dice.below(4) as usize,
        stop_grace_ms: dice.between(50, 3000),
        event_max_snoozes: dice.below(4) as u32,
        ..WorkerConfig::default()
    }
}

/// The limits of one handler: some have a timeout that slow runs exceed, a low concurrency, or a rate.
fn limits(seed: u64, handler: &str, lease_ms: u64) -> HandlerSettings {
    let mut dice = Dice::new(seed, &format!("claims limits {handler}"));
    HandlerSettings {
        timeout_ms: dice.chance(400).then(|| dice.between(lease_ms / 4, lease_ms)),
        concurrency: dice.chance(300).then(|| dice.between(1, 2) as usize),
        rate_per_s: dice.chance(200).then(|| dice.between(5, 50) as f64),
        order: Dice::new(seed, &format!("claims order {handler}")).chance(500).then_some(HandlerOrder::Key),
        ..HandlerSettings::default()
    }
}

/// The work of a handler on an event, the same on every attempt. The handler tags everything it writes (see [`tag`]),
/// so that all of it can be found and counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) commits: u32,
    pub(crate) emits: u32,
    /// Fails on every attempt.
    pub(crate) poison: bool,
    /// Ends its process on every attempt, in half of the worlds.
    pub(crate) kills: bool,
    /// Increments the shared counter with its last commit, which acknowledges the event.
    pub(crate) counts: bool,
}

pub(crate) fn work(seed: u64, handler: &HandlerId, event: &Event) -> Work {
    let mut dice = Dice::new(seed, &format!("{handler} {}", event.id));
    let ends = event.stream.topic.topic() == TICK;
    Work {
        commits: dice.below(3) as u32,
        emits: if ends { 0 } else { dice.below(3) as u32 },
        poison: dice.chance(50),
        kills: dice.chance(10) && Dice::new(seed, "claims killers").chance(500),
        counts: Dice::new(seed, &format!("counts {handler} {}", event.id)).chance(300),
    }
}

/// The tag in the payload of every event that a handler makes: `cause|handler|kind|ordinal`.
pub(crate) fn tag(event: &Event, handler: &HandlerId, kind: &str, ordinal: u32) -> String {
    format!("{}|{handler}|{kind}|{ordinal}", event.id)
}

/// The key of an event. There are few keys, so that many events wait for one another, and some events have none.
pub(crate) fn key(number: u64) -> Option<String> {
    [Some("k"), Some("l"), None, Some("k"), Some("m")][(number % 5) as usize].map(str::to_owned)
}

fn next_topic(event: &Event) -> TopicName {
    let at = TOPICS.iter().position(|topic| *topic == event.stream.topic.topic()).unwrap_or(1);
    TopicName::new(TOPICS[(at + 1).min(2)]).expect("a legal topic")
}

fn made(event: &Event, handler: &HandlerId, kind: &str, ordinal: u32) -> OutEvent {
    let payload = JsonText::from_value(&tag(event, handler, kind, ordinal)).expect("a short text");
    let priority = Priority([100, 100, 100, 7, 300][(ordinal as usize + event.offset.0 as usize) % 5]);
    let key = key(event.offset.0 + u64::from(ordinal));
    OutEvent { priority, key, ..OutEvent::new(next_topic(event), payload) }
}

pub(crate) fn emits(work: Work, event: &Event, handler: &HandlerId) -> Vec<OutEvent> {
    (0..work.emits).map(|ordinal| made(event, handler, "emit", ordinal)).collect()
}

pub(crate) fn entity(tag: String) -> Identity {
    Identity::Entity { type_name: "Trace".into(), key: tag }
}

pub(crate) fn changes(event: &Event, handler: &HandlerId, ordinal: u32) -> StateChanges {
    let identity = entity(tag(event, handler, "commit", ordinal));
    let fields = JsonText::from_value(&BTreeMap::from([("n", ordinal)])).ok();
    StateChanges {
        intents: vec![Intent { identity, fields, schema: 1 }],
        event: Some(made(event, handler, "commit", ordinal)),
        ..StateChanges::default()
    }
}
