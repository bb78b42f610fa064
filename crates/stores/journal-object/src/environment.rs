//! The environment variables that hold credentials. Their values are in no `Debug`, error or log line.

use std::fmt;

/// Variables that begin with one of these are passed on; no other variable is looked at.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];
/// Parts of the names of variables whose values must not be shown.
const SECRET_WORDS: [&str; 4] = ["KEY", "TOKEN", "SECRET", "SAS"];
/// Shorter values are ordinary words, such as the `test` of a server without accounts, and no secrets.
const SECRET_CHARS_MIN: usize = 8;

/// Environment variables: those of the process, or others for a program that opens several stores with different
/// credentials.
#[derive(Clone, Default)]
pub struct ObjectEnvironment {
    variables: Vec<(String, String)>,
}

impl ObjectEnvironment {
    /// Reads the variables of this process. A value that is not UTF-8 is left out.
    pub fn of_process() -> ObjectEnvironment {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(text).collect()
    }

    /// Returns a variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes"))
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns a text with the values of secret variables taken out, in case a library or a server repeats them.
    pub(crate) fn redact(&self, text: &str) -> String {
        let secret = |(name, value): &(&str, &str)| {
            let is_named_so = SECRET_WORDS.iter().any(|word| name.contains(word));
            // The path of a file is no secret, and an error about the file needs it.
            is_named_so && !name.ends_with("_FILE") && value.len() >= SECRET_CHARS_MIN
        };
        let mut secrets: Vec<(&str, &str)> = self.variables().filter(secret).collect();
        // A long value first: a short one may be a part of it.
        secrets.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        secrets.iter().fold(text.to_owned(), |text, (name, value)| text.replace(value, &format!("<{name}>")))
    }
}

impl FromIterator<(String, String)> for ObjectEnvironment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> ObjectEnvironment {
        let is_ours = |(name, value): &(String, String)| {
            PREFIXES.iter().any(|p| name.starts_with(p)) && !value.is_empty()
        };
        ObjectEnvironment { variables: variables.into_iter().filter(is_ours).collect() }
    }
}

impl fmt::Debug for ObjectEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.variables().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> ObjectEnvironment {
        let pairs = [
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
            ("AWS_SESSION_TOKEN", "wJalrXUtnFEMI-and-more"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_EMPTY", ""),
            ("HOME", "a folder"),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn only_variables_of_the_providers_are_kept() {
        let environment = environment();
        assert_eq!(environment.get("AWS_REGION"), Some("eu-central-1"));
        assert_eq!(environment.get("AWS_EMPTY"), None);
        assert_eq!(environment.get("HOME"), None);
    }

    #[test]
    fn values_are_shown_neither_by_debug_nor_in_a_redacted_text() {
        let environment = environment();
        let shown = format!("{environment:?}");
        assert!(shown.contains("AWS_SESSION_TOKEN") && !shown.contains("wJalr"), "{shown}");
        let text = "bad token wJalrXUtnFEMI-and-more of AKIDEXAMPLE (wJalrXUtnFEMI) in eu-central-1";
        assert_eq!(
            environment.redact(text),
            "bad token <AWS_SESSION_TOKEN> of <AWS_ACCESS_KEY_ID> (<AWS_SECRET_ACCESS_KEY>) in eu-central-1"
        );
    }
}
