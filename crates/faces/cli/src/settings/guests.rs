//! The settings of `millrace guest`: the limits of guests. Grants are given on the command line of each run.

use crate::settings::{Scope, SettingDef, SettingKind, SettingValue};

/// The largest number: whole numbers in a TOML file are signed.
const LARGEST: u64 = i64::MAX as u64;

/// Declares a number of the guest's settings.
macro_rules! number {
    ($name:literal, $field:ident, $min:literal, $max:expr, $help:literal) => {
        SettingDef {
            name: $name,
            help: $help,
            kind: SettingKind::Number { min: $min, max: $max },
            scope: Scope::Guest,
            also: &[],
            get: |config| SettingValue::Number(config.guest.$field),
            set: |config, value| {
                if let SettingValue::Number(number) = value {
                    config.guest.$field = number;
                }
            },
        }
    };
}

pub(super) static SETTINGS: &[SettingDef] = &[
    number!(
        "guest-memory-bytes-max",
        memory_bytes_max,
        65536,
        1 << 32,
        "Bytes of memory of the guest, its tables included: growing beyond fails inside the guest"
    ),
    number!(
        "guest-step-ms-max",
        step_ms_max,
        1,
        LARGEST,
        "Processor time that the guest may compute between two calls: a guest that takes longer is stopped"
    ),
    number!(
        "guest-wall-ms-max",
        wall_ms_max,
        0,
        LARGEST,
        "Real time of the guest from start to end: a guest that takes longer is stopped; 0 = no limit"
    ),
];
