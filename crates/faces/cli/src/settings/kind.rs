//! The values that a setting may have, and how its text is parsed.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<String>),
}

/// The text is the same in a flag, the environment and `config print`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => number.fmt(f),
            Value::Flag(flag) => flag.fmt(f),
            Value::List(items) => f.write_str(&items.join(",")),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
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
    /// Texts separated by commas.
    List {
        what: &'static str,
        check: fn(&str) -> bool,
    },
    /// Any text, never shown.
    Secret,
}

impl Kind {
    /// Parses the text. Returns `None` if it is not accepted.
    pub(crate) fn read(self, text: &str) -> Option<Value> {
        match self {
            Kind::Number { min, max } => {
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let number = text.parse().ok().filter(|number| digits && (min..=max).contains(number))?;
                Some(Value::Number(number))
            }
            Kind::Flag => text.parse().ok().map(Value::Flag),
            Kind::Choice(choices) => choices.contains(&text).then(|| Value::Text(text.into())),
            Kind::Text { check, .. } => check(text).then(|| Value::Text(text.into())),
            Kind::List { check, .. } => {
                let items: Vec<String> =
                    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Into::into).collect();
                items.iter().all(|item| check(item)).then_some(Value::List(items))
            }
            Kind::Secret => Some(Value::Text(text.into())),
        }
    }

    /// Returns what is accepted, as a continuation of «it must be».
    pub(crate) fn accepted(self) -> String {
        match self {
            Kind::Number { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Flag => "true or false".into(),
            Kind::Choice(choices) => choices.join(", "),
            Kind::Text { what, .. } => what.into(),
            Kind::List { what, .. } => format!("a list, separated by commas, of {what}"),
            Kind::Secret => "text".into(),
        }
    }

    pub(crate) fn shown(self, value: &Value) -> String {
        match (self, value) {
            (Kind::Secret, Value::Text(text)) if !text.is_empty() => "(secret)".into(),
            (_, value) => value.to_string(),
        }
    }
}
