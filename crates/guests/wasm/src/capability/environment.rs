//! Environment variables as programs see them: a private copy. Reads never see a variable that was not granted, and a
//! program that sets one changes the copy, never the process.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// Variables in one copy: setting one more is refused.
pub const VARIABLES_MAX: usize = 1024;
/// Bytes of one name and its value together: a longer one is refused.
pub const VARIABLE_BYTES_MAX: usize = 64 << 10;

/// How many variables that are too long for a reply are logged.
const TOLD_MAX: usize = 16;

/// Why a variable was not set: an answer for the program, not a failure of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    #[error("the name of a variable must not be empty, nor hold '=' or a zero byte")]
    BadName,
    #[error("the value of a variable must not hold a zero byte")]
    BadValue,
    #[error("a variable may take {VARIABLE_BYTES_MAX} bytes with its name")]
    TooLong,
    #[error("there are {VARIABLES_MAX} variables already")]
    TooMany,
}

/// The private copy of the variables, shared by the runs of one host.
#[derive(Debug, Default)]
pub struct Environment {
    variables: Mutex<BTreeMap<String, String>>,
    /// Names of variables that were reported as not set because they are too long, as far as the log has said so.
    too_long: Mutex<BTreeSet<String>>,
}

impl Environment {
    /// Makes a copy of these variables. Those beyond [`VARIABLES_MAX`], in the order of their names, are left out.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        let all: BTreeMap<_, _> = variables.into_iter().collect();
        let variables = Mutex::new(all.into_iter().take(VARIABLES_MAX).collect());
        Environment { variables, too_long: Mutex::default() }
    }

    /// Copies the variables of this process that `granted` accepts by name; a variable that is not UTF-8 is left out.
    pub fn of_process(granted: impl Fn(&str) -> bool) -> Environment {
        let variables = std::env::vars_os();
        let texts =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Environment::of(texts.filter(|(name, _)| granted(name)))
    }

    pub fn get(&self, name: &str) -> Option<String> {
        self.variables.lock().get(name).cloned()
    }

    pub fn set(&self, name: &str, value: &str) -> Result<(), EnvError> {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(EnvError::BadName);
        }
        if value.contains('\0') {
            return Err(EnvError::BadValue);
        }
        if name.len() + value.len() > VARIABLE_BYTES_MAX {
            return Err(EnvError::TooLong);
        }
        let mut variables = self.variables.lock();
        if variables.len() >= VARIABLES_MAX && !variables.contains_key(name) {
            return Err(EnvError::TooMany);
        }
        variables.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Returns whether to log that this variable does not fit: once for each variable, and for [`TOLD_MAX`] of them at
    /// most, so that no program can flood the log.
    pub(super) fn is_news(&self, name: &str) -> bool {
        let mut told = self.too_long.lock();
        told.len() < TOLD_MAX && told.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_the_copy_and_its_own_changes() {
        let env = Environment::of([("HOME".to_owned(), "/h".to_owned())]);
        assert_eq!(env.get("HOME").as_deref(), Some("/h"));
        assert_eq!(env.get("PATH"), None);
        env.set("PATH", "/bin").unwrap();
        assert_eq!(env.get("PATH").as_deref(), Some("/bin"));
    }

    #[test]
    fn the_log_is_told_once_of_each_variable_and_not_without_end() {
        let env = Environment::default();
        assert!(env.is_news("A") && !env.is_news("A"));
        let told = (0..1000).filter(|n| env.is_news(&n.to_string())).count();
        assert_eq!(told, TOLD_MAX - 1);
    }

    #[test]
    fn setting_never_touches_the_process() {
        let env = Environment::of_process(|_| true);
        env.set("MILLRACE_WASM_TEST_SET", "1").unwrap();
        assert!(std::env::var_os("MILLRACE_WASM_TEST_SET").is_none());
    }

    #[test]
    fn only_granted_names_are_copied() {
        // Cargo sets this variable for every test.
        let env = Environment::of_process(|name| name == "CARGO_PKG_NAME");
        assert_eq!(env.get("CARGO_PKG_NAME").as_deref(), Some("millrace-wasm"));
        assert_eq!(env.get("CARGO_PKG_VERSION"), None);
    }

    #[test]
    fn bad_and_too_many_variables_are_refused() {
        let env = Environment::default();
        assert_eq!(env.set("", "v"), Err(EnvError::BadName));
        assert_eq!(env.set("a=b", "v"), Err(EnvError::BadName));
        assert_eq!(env.set("a", "\0"), Err(EnvError::BadValue));
        assert_eq!(env.set("a", &"x".repeat(VARIABLE_BYTES_MAX)), Err(EnvError::TooLong));
        for number in 0..VARIABLES_MAX {
            env.set(&format!("v{number}"), "").unwrap();
        }
        assert_eq!(env.set("one_more", ""), Err(EnvError::TooMany));
        env.set("v0", "changed").unwrap();
    }
}
