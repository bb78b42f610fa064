//! The capabilities that can be granted to programs, and how a grant is written.

use std::path::PathBuf;
use std::str::FromStr;

/// A group of operations that a host answers only if it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    Time,
    Random,
    Log,
    Env,
    Fs,
    Input,
    Output,
    Bus,
    Store,
}

impl Grant {
    pub const ALL: [Grant; 9] = [
        Grant::Time,
        Grant::Random,
        Grant::Log,
        Grant::Env,
        Grant::Fs,
        Grant::Input,
        Grant::Output,
        Grant::Bus,
        Grant::Store,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Grant::Time => "time",
            Grant::Random => "random",
            Grant::Log => "log",
            Grant::Env => "env",
            Grant::Fs => "fs",
            Grant::Input => "input",
            Grant::Output => "output",
            Grant::Bus => "bus",
            Grant::Store => "store",
        }
    }

    /// The ids of its effects: first that of generation A, then that of generation B. Our own are the same in both.
    pub fn effect_ids(self) -> &'static [&'static str] {
        match self {
            Grant::Time => &["std::time::Time", "voyd.std.time"],
            Grant::Random => &["std::random::Random", "voyd.std.random"],
            Grant::Log => &["std::log::Log", "voyd.std.log"],
            Grant::Env => &["std::env::Env", "voyd.std.env"],
            Grant::Fs => &["std::fs::Fs", "voyd.std.fs"],
            Grant::Input => &["std::input::Input", "voyd.std.input"],
            Grant::Output => &["std::output::Output", "voyd.std.output"],
            Grant::Bus => &["millrace.bus"],
            Grant::Store => &["millrace.store"],
        }
    }

    /// The grant that an effect needs; `None` for an effect of the embedding program itself.
    ///
    /// A compiler puts the id of the package before the paths of its library (`std::std::time::Time`), so a path of
    /// generation A also counts behind a package.
    pub fn of_effect(effect_id: &str) -> Option<Grant> {
        let is_id =
            |id: &str| effect_id == id || (id.contains("::") && effect_id.strip_suffix(id) == Some("std::"));
        Grant::ALL.into_iter().find(|grant| grant.effect_ids().iter().any(|id| is_id(id)))
    }

    /// How the grant is written after `--allow`.
    pub fn spelling(self) -> &'static str {
        match self {
            Grant::Fs => "fs=DIR",
            grant => grant.as_str(),
        }
    }
}

/// A grant as it is written: `time`, `random`, `log`, `env`, `env=NAME`, `fs=DIR`, `input`, `output`, `bus`, `store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// A capability that is granted by its name alone.
    Plain(Grant),
    /// A single variable of the environment.
    EnvName(String),
    Folder(PathBuf),
}

/// A text that is not a grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is no capability: it must be time, random, log, env, env=NAME, fs=DIR, input, output, bus or store"
)]
pub struct AllowError {
    pub found: String,
}

impl Allow {
    pub fn grant(&self) -> Grant {
        match self {
            Allow::Plain(grant) => *grant,
            Allow::EnvName(_) => Grant::Env,
            Allow::Folder(_) => Grant::Fs,
        }
    }
}

impl FromStr for Allow {
    type Err = AllowError;

    fn from_str(text: &str) -> Result<Allow, AllowError> {
        let bad = || AllowError { found: text.to_owned() };
        match text.split_once('=') {
            Some(("fs", folder)) if !folder.is_empty() => Ok(Allow::Folder(folder.into())),
            Some(("env", name)) if !name.is_empty() => Ok(Allow::EnvName(name.into())),
            Some(_) => Err(bad()),
            None => {
                let plain = Grant::ALL.into_iter().filter(|grant| *grant != Grant::Fs);
                plain.into_iter().find(|grant| grant.as_str() == text).map(Allow::Plain).ok_or_else(bad)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_spelled_as_the_command_line_says() {
        assert_eq!("time".parse(), Ok(Allow::Plain(Grant::Time)));
        assert_eq!("env".parse(), Ok(Allow::Plain(Grant::Env)));
        assert_eq!("env=HOME".parse(), Ok(Allow::EnvName("HOME".into())));
        assert_eq!("fs=a=b".parse(), Ok(Allow::Folder("a=b".into())));
        for bad in ["", "fs", "fs=", "env=", "time=1", "network", "Time"] {
            let error = bad.parse::<Allow>().unwrap_err();
            assert!(error.to_string().contains("fs=DIR"), "{error}");
        }
    }

    #[test]
    fn an_effect_id_names_its_grant_in_both_generations() {
        for grant in Grant::ALL {
            for id in grant.effect_ids() {
                assert_eq!(Grant::of_effect(id), Some(grant));
            }
        }
        assert_eq!(Grant::of_effect("std::std::time::Time"), Some(Grant::Time));
        assert_eq!(Grant::of_effect("evil::std::time::Time"), None);
        assert_eq!(Grant::of_effect("case.hand"), None);
    }
}
