//! The bounds of the server: tables of similar entries, grouped by the part that they limit. The defaults are those of
//! the crates that enforce them.

mod edge;
mod engine;
mod machine;

use crate::settings::SettingDef;

/// Declares a number of the config: its name, field and type, its smallest and largest value.
macro_rules! bound {
    ($name:literal, $($field:ident).+, $type:ident, $min:literal, $help:literal) => {
        bound!($name, $($field).+, $type, $min, largest!($type), &[], $help)
    };
    ($name:literal, $($field:ident).+, $type:ident, $min:literal, $max:expr, $also:expr, $help:literal) => {
        SettingDef {
            name: $name,
            help: $help,
            kind: SettingKind::Number { min: $min, max: $max },
            scope: Scope::Bound,
            also: $also,
            get: |config| SettingValue::Number(config.$($field).+ as u64),
            set: |config, value| {
                if let SettingValue::Number(number) = value {
                    config.$($field).+ = number as $type;
                }
            },
        }
    };
}

/// Returns the largest value of a type. Whole numbers in a TOML file are signed.
macro_rules! largest {
    (u32) => {
        u32::MAX as u64
    };
    ($type:ident) => {
        i64::MAX as u64
    };
}

pub(super) use {bound, largest};

pub(super) fn settings() -> impl Iterator<Item = &'static SettingDef> {
    engine::SETTINGS.iter().chain(edge::SETTINGS).chain(machine::SETTINGS)
}
