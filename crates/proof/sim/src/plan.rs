//! The settings that a seed draws before the world begins: topics, groups, limits, and how much goes wrong.

use millrace_bus::BusLimits;
use millrace_model::{AckMode, Durability, Filter, Group, TopicConfig, TopicKey};

use crate::dice::Dice;
use crate::place::Seat;
use crate::world::Sabotage;

/// How long the wall clock is far off, at most. Servers believe a step that lasts longer.
pub(crate) const FAR_MS_MAX: u64 = 1500;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub limits: BusLimits,
    pub topics: Vec<TopicPlan>,
    pub groups: Vec<GroupPlan>,
    pub publishers: u64,
    /// The longest pause between two events of one publisher.
    pub publish_pause_ms_max: u64,
    pub rates: Rates,
    /// How often, in permille, the admin changes a schema when it looks around; zero in some worlds.
    pub schema_changes: u64,
    /// A deliberate bug of the server: see `world/sabotage.rs`.
    pub sabotage: Option<Sabotage>,
}

#[derive(Clone, Debug)]
pub(crate) struct TopicPlan {
    pub key: TopicKey,
    pub config: TopicConfig,
}

#[derive(Clone, Debug)]
pub(crate) struct GroupPlan {
    pub seat: Seat,
    pub filter: Filter,
    pub members: u64,
    pub mode: AckMode,
    pub sticky: bool,
}

/// All in permille. Faults of the server are drawn at every tick of the fate, the others whenever they are possible.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    pub kill: u64,
    pub power_loss: u64,
    pub stop: u64,
    pub wall_step: u64,
    pub far_step: u64,
    pub commit_failed: u64,
    pub commit_slow: u64,
    pub read_failed: u64,
    pub disconnect: u64,
    pub seek: u64,
    pub grow: u64,
    pub delete_topic: u64,
    pub neighbour: u64,
}

impl Plan {
    /// How long the server's shell doubts a step of the wall clock.
    pub(crate) fn clock_settle_ms(&self) -> u64 {
        let believes_all = self.sabotage == Some(Sabotage::BelieveEveryStep);
        if believes_all { 0 } else { self.limits.clock_settle_ms }
    }

    pub(crate) fn draw(seed: u64, sabotage: Option<Sabotage>) -> Plan {
        let mut dice = Dice::new(seed, "plan");
        let mut limits = limits(&mut dice);
        // Separate dice, so that older seeds give the same runs as before.
        let mut waiting = Dice::new(seed, "sticky waiting");
        limits.sticky_waiting_bodies_max = waiting.between(0, 4) as usize;
        if waiting.chance(300) {
            limits.sticky_waiting_total_max = waiting.between(0, 20) as usize;
        }
        let topics: Vec<TopicPlan> = (0..dice.between(1, 3)).filter_map(|n| topic(&mut dice, n)).collect();
        let groups = topics.iter().flat_map(|topic| groups(&mut dice, topic)).collect();
        let rates = rates(&mut dice);
        let (publishers, publish_pause_ms_max) = (dice.between(1, 3), dice.between(10, 120));
        let schema_changes =
            Dice::new(seed, "schema changes").pick(&[0, 100, 600]).copied().unwrap_or_default();
        Plan { limits, topics, groups, publishers, publish_pause_ms_max, rates, schema_changes, sabotage }
    }
}

fn limits(dice: &mut Dice) -> BusLimits {
    BusLimits {
        ack_timeout_ms: dice.between(200, 2000),
        max_attempts: dice.between(1, 4) as u32,
        max_inflight: dice.between(1, 8) as u32,
        fetched_max: dice.between(1, 24) as usize,
        tail_events_max: dice.between(1, 32) as usize,
        fetched_bytes_total_max: if dice.chance(300) { dice.between(1, 2000) as usize } else { 1 << 20 },
        tail_bytes_total_max: dice.between(1, 32) as usize * 128,
        open_event_bytes_max: if dice.chance(500) { 0 } else { 4096 },
        sticky_waiting_max: dice.between(1, 12) as usize,
        sticky_keys_max: if dice.chance(300) { dice.between(1, 3) as usize } else { 1_000_000 },
        delivered_flush_ms: dice.between(10, 300),
        read_retry_ms: dice.between(20, 200),
        clock_settle_ms: dice.between(FAR_MS_MAX + 500, 4000),
        retention_interval_ms: dice.between(200, 1000),
        due_rows_max: dice.between(1, 8) as usize,
        durability: Durability::Fsync,
        ..BusLimits::default()
    }
}

fn topic(dice: &mut Dice, number: u64) -> Option<TopicPlan> {
    let durability = match dice.below(10) {
        0..6 => None,
        6 | 7 => Some(Durability::Fsync),
        8 => Some(Durability::Os),
        _ => Some(Durability::Memory),
    };
    let mut config =
        TopicConfig { partitions: dice.between(1, 4) as u32, durability, ..TopicConfig::default() };
    config.max_attempts = dice.chance(500).then(|| dice.between(1, 4) as u32);
    config.ack_timeout_ms = dice.chance(500).then(|| dice.between(200, 2000));
    config.retention_ms = match dice.below(20) {
        0..3 => Some(dice.between(500, 5000)),
        // Longer than any run: nothing may be removed.
        3..10 => Some(dice.between(1, 24) * 3_600_000),
        _ => None,
    };
    config.retention_bytes = dice.chance(100).then(|| dice.between(500, 5000));
    Some(TopicPlan { key: TopicKey::parse(&format!("default/t{number}")).ok()?, config })
}

fn groups(dice: &mut Dice, topic: &TopicPlan) -> Vec<GroupPlan> {
    let mut groups: Vec<GroupPlan> =
        (0..dice.between(1, 3)).filter_map(|n| group(dice, topic.key.clone(), &format!("g{n}"))).collect();
    if let Some(letters) = topic.key.dead_letters().filter(|_| dice.chance(250)) {
        groups.extend(
            group(dice, letters, "undertaker").map(|plan| GroupPlan { filter: Filter::default(), ..plan }),
        );
    }
    groups
}

fn group(dice: &mut Dice, topic: TopicKey, name: &str) -> Option<GroupPlan> {
    let filter = match dice.below(8) {
        0 => Filter { key: Some("k1".to_owned()), header: None },
        1 => Filter { key: None, header: Some(("h".to_owned(), "a".to_owned())) },
        _ => Filter::default(),
    };
    let mode = if dice.chance(500) { AckMode::Cumulative } else { AckMode::Individual };
    Some(GroupPlan {
        seat: Seat { topic, group: Group::new(name).ok()? },
        filter,
        members: dice.between(1, 3),
        mode,
        sticky: dice.chance(300),
    })
}

/// Each kind of fault is absent in some seeds and frequent in others: a rare combination shows only if other faults are
/// quiet.
fn rates(dice: &mut Dice) -> Rates {
    let mut rate = |often: u64| match dice.below(3) {
        0 => 0,
        1 => often / 4 + 1,
        _ => often,
    };
    Rates {
        kill: rate(60),
        power_loss: rate(40),
        stop: rate(40),
        wall_step: rate(80),
        far_step: rate(120),
        commit_failed: rate(6),
        commit_slow: rate(100),
        read_failed: rate(150),
        disconnect: rate(30),
        seek: rate(120),
        grow: rate(60),
        delete_topic: rate(20),
        neighbour: rate(700),
    }
}
