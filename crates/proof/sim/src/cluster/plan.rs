//! The settings that a seed draws before a cluster begins: servers, clocks, limits, and how much goes wrong.

use millrace_journal::HeadGuard;
use millrace_store_journal::JournalSettings;

use crate::dice::Dice;

const MINUTE_MS: u64 = 60_000;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) servers: usize,
    pub(super) clients: usize,
    /// The longest pause between two requests of a client.
    pub(super) client_pause_ms_max: u64,
    pub(super) head_guard: HeadGuard,
    /// The engine fails over now and then and comes back without its newest records.
    pub(super) loses_tail: bool,
    /// The engine tells its own time with every answer. Machines are suspended together with their clocks only then:
    /// nothing else would show that time has passed.
    pub(super) tells_time: bool,
    /// How far wall clocks are off at most, in either direction.
    pub(super) skew_ms_max: u64,
    /// After this time the outcome of a request is unknown.
    pub(super) deadline_ms: u64,
    /// How often a server looks after its handle, and whether it has to take the lead.
    pub(super) keep_ms: u64,
    pub(super) supervise_ms: u64,
    pub(super) settings: JournalSettings,
    pub(super) rates: Rates,
}

/// All in permille: the first group at every tick of the fate, the second one for every request to the engine.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    pub(super) kill: u64,
    pub(super) power_loss: u64,
    pub(super) stop: u64,
    pub(super) freeze: u64,
    /// A machine sleeps until the records it knows are deleted.
    pub(super) sleep: u64,
    pub(super) cut: u64,
    pub(super) engine_away: u64,
    pub(super) wall_step: u64,
    pub(super) lose_tail: u64,
    /// A copy fails: its disk is full, or a row of it is damaged.
    pub(super) copy_fails: u64,

    pub(super) lost_request: u64,
    pub(super) lost_answer: u64,
    pub(super) late: u64,
    pub(super) repeated: u64,
    pub(super) slow: u64,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Plan {
        let mut dice = Dice::new(seed, "cluster plan");
        let head_guard = if dice.chance(600) { HeadGuard::Manifest } else { HeadGuard::Engine };
        let loses_tail = dice.chance(300);
        let skew_ms_max = [0, MINUTE_MS / 2, 2 * MINUTE_MS, 60 * MINUTE_MS][dice.below(4) as usize];
        let lead_timeout_ms = dice.between(4_000, 16_000);
        Plan {
            servers: dice.between(2, 5) as usize,
            clients: dice.between(1, 4) as usize,
            client_pause_ms_max: dice.between(300, 3_000),
            head_guard,
            loses_tail,
            tells_time: dice.chance(500),
            skew_ms_max,
            deadline_ms: dice.between(500, 2 * lead_timeout_ms),
            keep_ms: dice.between(lead_timeout_ms / 12, lead_timeout_ms / 4),
            supervise_ms: dice.between(lead_timeout_ms / 6, lead_timeout_ms / 2),
            settings: settings(&mut dice, lead_timeout_ms, skew_ms_max),
            rates: rates(&mut dice),
        }
    }
}

/// The times keep the proportions of the defaults: the grace time is longer than any difference of clocks, and many
/// times the age at which a manifest is too old to rely on.
fn settings(dice: &mut Dice, lead_timeout_ms: u64, skew_ms_max: u64) -> JournalSettings {
    let trim_grace_ms = (2 * skew_ms_max).max(MINUTE_MS);
    let manifest_age_ms_max = trim_grace_ms / 12;
    JournalSettings {
        lead_timeout_ms,
        // The size of a record differs from run to run by some bytes, because keys and nonces are random: nothing
        // may depend on bytes.
        snapshot_bytes: u64::MAX,
        snapshot_records: if dice.chance(500) { dice.between(3, 20) } else { dice.between(20, 100) },
        part_bytes: dice.between(8, 64) as usize,
        trim_grace_ms,
        records_kept: dice.between(1, 15),
        clean_up_ms: dice.between(5_000, MINUTE_MS),
        manifest_refresh_ms: dice.between(manifest_age_ms_max / 8, manifest_age_ms_max / 2),
        manifest_age_ms_max,
        backoff_ms_max: dice.between(100, 2_000),
        ..JournalSettings::default()
    }
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
        kill: rate(20),
        power_loss: rate(20),
        stop: rate(12),
        freeze: rate(30),
        sleep: rate(6),
        cut: rate(30),
        engine_away: rate(12),
        wall_step: rate(60),
        lose_tail: rate(30),
        copy_fails: rate(15),
        lost_request: rate(40),
        lost_answer: rate(60),
        late: rate(30),
        repeated: rate(30),
        slow: rate(60),
    }
}
