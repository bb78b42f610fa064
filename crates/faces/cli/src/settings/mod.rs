//! Every setting, declared once. Flags, environment names, keys of the file, help and `config print` derive from it.
//!
//! A setting `ack-timeout-ms` is the flag `--ack-timeout-ms`, the environment variable `MILLRACE_ACK_TIMEOUT_MS` and
//! the key `ack_timeout_ms` of the file. Flags beat the environment, which beats the file, which beats the default.

mod auth;
mod bounds;
mod capability;
mod cluster;
mod config;
mod described;
mod entry;
mod flags;
mod guests;
mod kind;
mod main_settings;
mod mongo_env;
mod os;
mod runs;
mod sources;
mod telemetry;

pub(crate) use auth::token_line;
pub(crate) use capability::capability_line;
pub(crate) use config::Config;
pub(crate) use described::{described, described_again, shown};
pub(crate) use flags::args;
pub(crate) use kind::{SettingKind, SettingValue};
pub(crate) use os::{SOCKET_DEFAULT, SOCKET_NONE};
pub(crate) use sources::{Effective, SettingSource, resolve};

/// A setting: its name, the values it may have, and where they are stored.
pub(crate) struct SettingDef {
    /// The name of the flag, without the dashes.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: SettingKind,
    pub(crate) scope: Scope,
    /// Environment variables of the source document with the same meaning.
    pub(crate) also: &'static [(&'static str, Also)],
    pub(crate) get: fn(&Config) -> SettingValue,
    pub(crate) set: fn(&mut Config, SettingValue),
}

/// The commands that have a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Serve,
    /// For the server, and for the commands that work on its store.
    Store,
    /// For the server, and for the commands that talk to its CQRS loop.
    Socket,
    /// A bound of the server: shown by `--help`, not by `-h`.
    Bound,
    /// For the commands that talk to a server.
    Client,
    /// For `millrace run`.
    Run,
    /// For `millrace guest`.
    Guest,
    Everywhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Also {
    SameValue,
    /// Only the port of an address.
    Port,
}

impl SettingDef {
    pub(crate) fn env_name(&self) -> String {
        format!("MILLRACE_{}", self.name.to_uppercase().replace('-', "_"))
    }

    pub(crate) fn file_key(&self) -> String {
        self.name.replace('-', "_")
    }
}

pub(crate) fn all() -> impl Iterator<Item = &'static SettingDef> {
    main_settings::SETTINGS
        .iter()
        .chain(cluster::SETTINGS)
        .chain(os::SETTINGS)
        .chain(runs::SETTINGS)
        .chain(guests::SETTINGS)
        .chain(telemetry::SETTINGS)
        .chain(bounds::settings())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_legal_value_and_every_value_can_be_set() {
        for setting in all() {
            let mut config = Config::default();
            let value = (setting.get)(&config);
            let shown = value.to_string();
            if shown.is_empty() {
                continue;
            }
            let read = setting.kind.read(&shown).unwrap_or_else(|| panic!("{}: {shown}", setting.name));
            assert_eq!(read, value, "{}", setting.name);
            (setting.set)(&mut config, read);
            assert_eq!((setting.get)(&config), value, "{}", setting.name);
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<_> = all().map(|setting| setting.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn engine_and_store_agree_on_the_longest_dedupe_window() {
        let mut config = Config::default();
        assert_eq!(config.limits.dedupe_window_ms_max, config.store_options.dedupe_window_ms_max);
        assert!(config.limits.dedupe_window_ms <= config.limits.dedupe_window_ms_max);
        let setting = all().find(|setting| setting.name == "dedupe-window-ms-max").unwrap();
        (setting.set)(&mut config, SettingValue::Number(5));
        assert_eq!((config.limits.dedupe_window_ms_max, config.store_options.dedupe_window_ms_max), (5, 5));
    }

    #[test]
    fn the_bounds_of_the_store_reach_it() {
        let mut config = Config::default();
        for (name, number) in [
            ("dedupe-ids-max", 1),
            ("store-readers-max", 2),
            ("store-wal-bytes", 5000),
            ("store-fold-events", 4),
            ("store-fold-bytes", 6),
        ] {
            let setting = all().find(|setting| setting.name == name).unwrap();
            (setting.set)(&mut config, SettingValue::Number(number));
        }
        let options = &config.store_options;
        let sqlite = &options.sqlite;
        assert_eq!((options.dedupe_ids_max, options.readers_max, sqlite.wal_bytes), (1, 2, 5000));
        assert_eq!((sqlite.fold_events, sqlite.fold_bytes), (4, 6));
    }
}
