//! The values that a setting may have, and how its text is parsed.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingValue {
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<String>),
}

/// The text is the same in a flag, the environment and `config print`.
impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Text(text) => f.write_str(text),
            SettingValue::Number(number) => number.fmt(f),
            SettingValue::Flag(flag) => flag.fmt(f),
            SettingValue::List(items) => f.write_str(&items.join(",")),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SettingKind {
    Number {
        min: u64,
        max: u64,
    },
    Flag,
    Choice(&'static [&'static str]),
    /// Any text that passes the check; `what` says which texts do.
    Text {
        what: &'static str,
        check: fn(&str) -> bool,
    },
    /// A text that may hold a password: it is shown as `shown` returns it.
    Address {
        what: &'static str,
        check: fn(&str) -> bool,
        shown: fn(&str) -> String,
    },
    /// Texts separated by commas.
    List {
        what: &'static str,
        check: fn(&str) -> bool,
    },
    /// Any text, never shown.
    Secret,
}

impl SettingKind {
    /// Parses the text. Returns `None` if it is not accepted.
    pub(crate) fn read(self, text: &str) -> Option<SettingValue> {
        match self {
            SettingKind::Number { min, max } => {
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let number = text.parse().ok().filter(|number| digits && (min..=max).contains(number))?;
                Some(SettingValue::Number(number))
            }
            SettingKind::Flag => text.parse().ok().map(SettingValue::Flag),
            SettingKind::Choice(choices) => choices.contains(&text).then(|| SettingValue::Text(text.into())),
            SettingKind::Text { check, .. } | SettingKind::Address { check, .. } => {
                check(text).then(|| SettingValue::Text(text.into()))
            }
            SettingKind::List { check, .. } => {
                let items: Vec<String> =
                    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Into::into).collect();
                items.iter().all(|item| check(item)).then_some(SettingValue::List(items))
            }
            SettingKind::Secret => Some(SettingValue::Text(text.into())),
        }
    }

    /// Returns what is accepted, as a continuation of «it must be».
    pub(crate) fn accepted(self) -> String {
        match self {
            // The largest number that TOML and SQLite have is no bound that anybody chose.
            SettingKind::Number { min, max } if max >= i64::MAX as u64 => {
                format!("a whole number from {min} on")
            }
            SettingKind::Number { min, max } => format!("a whole number from {min} to {max}"),
            SettingKind::Flag => "true or false".into(),
            SettingKind::Choice(choices) => choices.join(", "),
            SettingKind::Text { what, .. } | SettingKind::Address { what, .. } => what.into(),
            SettingKind::List { what, .. } => format!("a list, separated by commas, of {what}"),
            SettingKind::Secret => "text".into(),
        }
    }

    pub(crate) fn shown(self, value: &SettingValue) -> String {
        match (self, value) {
            (SettingKind::Secret, SettingValue::Text(text)) if !text.is_empty() => "(secret)".into(),
            (SettingKind::Address { shown, .. }, SettingValue::Text(text)) => shown(text),
            (_, value) => value.to_string(),
        }
    }
}
