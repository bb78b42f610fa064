//! Names of types: derived from the struct's name or given explicitly, and checked at compile time.

use syn::{LitStr, Result};

/// The longest name of a topic (four bytes stay free for the `.DLQ` of its dead-letter topic).
const EVENT_BYTES_MAX: usize = 251;
/// The longest id of a handler.
const HANDLER_BYTES_MAX: usize = 255;

/// Derives the event type from the struct's name by the two substitutions of the source document: first
/// `(.)([A-Z][a-z]+)` to `\1.\2`, then `([a-z0-9])([A-Z])` to `\1.\2`, then lower case. Each substitution goes from
/// left to right and uses no character twice.
pub(crate) fn event_type(ident: &str) -> String {
    between_lower_and_upper(&before_words(ident)).to_lowercase()
}

fn before_words(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut at) = (String::new(), 0);
    while at < chars.len() {
        let lowers = chars.iter().skip(at + 2).take_while(|c| c.is_ascii_lowercase()).count();
        if chars.get(at + 1).is_some_and(char::is_ascii_uppercase) && lowers > 0 {
            out.push(chars[at]);
            out.push('.');
            out.extend(&chars[at + 1..at + 2 + lowers]);
            at += 2 + lowers;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

fn between_lower_and_upper(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut at) = (String::new(), 0);
    while at < chars.len() {
        let (first, second) = (chars[at], chars.get(at + 1));
        match second {
            Some(&upper)
                if (first.is_ascii_lowercase() || first.is_ascii_digit()) && upper.is_ascii_uppercase() =>
            {
                out.extend([first, '.', upper]);
                at += 2;
            }
            _ => {
                out.push(first);
                at += 1;
            }
        }
    }
    out
}

/// Returns the problem with a topic's name, if any. The rules are those of a session that opens the topic.
pub(crate) fn event_type_problem(name: &str) -> Option<String> {
    problem(name, EVENT_BYTES_MAX)
}

pub(crate) fn check_event_type(name: &LitStr) -> Result<()> {
    event_type_problem(&name.value()).map_or(Ok(()), |problem| Err(syn::Error::new(name.span(), problem)))
}

pub(crate) fn check_handler_id(id: &LitStr) -> Result<()> {
    problem(&id.value(), HANDLER_BYTES_MAX).map_or(Ok(()), |problem| Err(syn::Error::new(id.span(), problem)))
}

fn problem(name: &str, bytes_max: usize) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    if name.is_empty() || name.len() > bytes_max {
        return Some(format!("`{name}` has {} bytes: 1 to {bytes_max} are allowed", name.len()));
    }
    if let Some(found) = name.chars().find(|c| !allowed(*c)) {
        return Some(format!("`{name}` contains {found:?}: only A-Z a-z 0-9 . _ : - are allowed"));
    }
    let has_empty_segment = name.split('.').any(str::is_empty);
    has_empty_segment
        .then(|| format!("`{name}` has an empty dot segment: no leading, trailing or doubled dots"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_derive_as_in_the_source_document() {
        for (ident, expected) in [
            ("UserCreated", "user.created"),
            ("OrderPlaced", "order.placed"),
            ("SystemCleanup", "system.cleanup"),
            ("OAuth2TokenIssued", "o.auth2.token.issued"),
            ("IPv6Assigned", "i.pv6.assigned"),
            ("SHA256Done", "sha256.done"),
            ("FooBAR", "foo.bar"),
            ("User_Created", "user_.created"),
            ("AB", "ab"),
            ("HTTPDone", "http.done"),
            ("HttpDone", "http.done"),
            ("EventDeadLetter", "event.dead.letter"),
            ("A", "a"),
            ("Abc", "abc"),
            ("ABc", "a.bc"),
            ("AaBbCcDd", "aa.bb.cc.dd"),
            ("lower", "lower"),
            ("V2", "v2"),
            ("X1Y2", "x1.y2"),
            ("_Hidden", "_.hidden"),
        ] {
            assert_eq!(event_type(ident), expected, "{ident}");
        }
    }

    #[test]
    fn bad_names_say_what_is_wrong() {
        for (name, part) in [
            ("", "1 to 251"),
            ("a..b", "empty dot segment"),
            ("a b", "contains ' '"),
            ("über", "contains 'ü'"),
        ] {
            let problem = event_type_problem(name).unwrap_or_default();
            assert!(problem.contains(part), "{name}: {problem}");
        }
        assert_eq!(event_type_problem("user.created"), None);
    }
}
