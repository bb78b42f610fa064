//! The settings of `millrace run`: the scheduler, the limits of programs, their grants.

use millrace_wasm::capability::Allow;

use crate::settings::{Scope, SettingDef, SettingKind, SettingValue};

/// The largest number: whole numbers in a TOML file are signed.
const LARGEST: u64 = i64::MAX as u64;

/// Declares a number of the settings of `millrace run`.
macro_rules! number {
    ($name:literal, $field:ident, $min:literal, $max:expr, $help:literal) => {
        SettingDef {
            name: $name,
            help: $help,
            kind: SettingKind::Number { min: $min, max: $max },
            scope: Scope::Run,
            also: &[],
            get: |config| SettingValue::Number(config.run.$field),
            set: |config, value| {
                if let SettingValue::Number(number) = value {
                    config.run.$field = number;
                }
            },
        }
    };
}

pub(super) static SETTINGS: &[SettingDef] = &[
    SettingDef {
        name: "clock",
        help: "Time of the runs: real, or a virtual one that jumps to the next timer when nothing is left to do",
        kind: SettingKind::Choice(&["real", "virtual"]),
        scope: Scope::Run,
        also: &[],
        get: |config| SettingValue::Text(config.run.clock.clone()),
        set: |config, value| config.run.clock = value.to_string(),
    },
    number!(
        "budget",
        budget,
        1,
        u32::MAX as u64,
        "Steps of all runs together before the scheduler looks at timers and completions again"
    ),
    number!(
        "tick-ms-max",
        tick_ms_max,
        1,
        LARGEST,
        "Time after which the scheduler looks at timers and completions again, whatever is left of the budget"
    ),
    number!(
        "buffer",
        buffer,
        0,
        1 << 30,
        "Bytes of each run's buffer, for requests, replies and results; 0 = 4096 for generation A, 131072 for B"
    ),
    SettingDef {
        name: "allow",
        help: "Grants of the module: time, random, log, env, env=NAME, fs=DIR, input, output, bus (needs a server, --url), \
               store (--store); nothing else",
        kind: SettingKind::List {
            what: "time, random, log, env, env=NAME, fs=DIR, input, output, bus or store",
            check: |text| text.parse::<Allow>().is_ok(),
        },
        scope: Scope::Run,
        also: &[],
        get: |config| SettingValue::List(config.run.allow.clone()),
        set: |config, value| {
            if let SettingValue::List(items) = value {
                config.run.allow = items;
            }
        },
    },
    SettingDef {
        name: "seed",
        help: "Shuffles completions of the same moment, and seeds random: the same seed, the same trace",
        kind: SettingKind::Text {
            what: "a whole number from 0 to 18446744073709551615",
            check: |text| text.parse::<u64>().is_ok(),
        },
        scope: Scope::Run,
        also: &[],
        get: |config| SettingValue::Text(config.run.seed.clone()),
        set: |config, value| config.run.seed = value.to_string(),
    },
    number!(
        "fuel",
        step_fuel_max,
        1,
        LARGEST,
        "Wasm instructions, about, in one step of a run: a run that uses more fails"
    ),
    number!(
        "step-ms-max",
        step_ms_max,
        1,
        LARGEST,
        "Real time of one step of a run: a run that takes longer fails"
    ),
    number!(
        "run-memory-bytes-max",
        memory_bytes_max,
        65536,
        1 << 32,
        "Bytes of all memories, tables and objects of the module together: growing beyond fails inside the module"
    ),
    number!(
        "wall-ms-max",
        wall_ms_max,
        0,
        LARGEST,
        "Time of a run on its clock, from start to end: a run that takes longer fails; 0 = no limit"
    ),
];
