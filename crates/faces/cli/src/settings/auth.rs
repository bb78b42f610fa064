//! `[[auth.tokens]]` and `[[auth.certificates]]` of the file: the clients that may connect. These settings have no flag
//! and no environment variable, because other users of the machine can see both.
//!
//! Omitted keys get the safe value: only the namespace `default`, and no scope `admin`.

use millrace_model::{Actor, Namespace, Timestamp};
use millrace_server::{
    CertificateName, NamespaceRule, Proof, Rate, Scope, TOKENS_MAX, TokenDigest, TokenSettings,
};
use toml::{Table, Value};

use crate::failure::Failure;
use crate::settings::SettingSource;
use crate::settings::entry::{EntryError, NAMES_MAX, text};

pub(super) const KEY: &str = "auth";
const ALL: &str = "*";
/// The keys of each entry of both lists, beside those that identify the client.
const KEYS: &str = "agent, roles, scopes, namespaces, rate, burst, expires";
/// Smaller numbers are refused, because they are more likely seconds than milliseconds; as milliseconds this is the
/// year 1973.
const EXPIRES_MS_MIN: i64 = 100_000_000_000;

pub(super) fn tokens(found: &Value, source: &SettingSource) -> Result<Vec<TokenSettings>, Failure> {
    let usage = |what: String| Failure::Usage(format!("{what} ({source})"));
    let table = found.as_table().ok_or_else(|| usage("auth is no table: write [[auth.tokens]]".into()))?;
    if let Some(key) = table.keys().find(|key| !LISTS.iter().any(|list| list.key == **key)) {
        return Err(usage(format!("auth.{key} is no setting: auth has tokens and certificates")));
    }
    let mut read: Vec<TokenSettings> = Vec::new();
    for list in LISTS {
        let key = list.key;
        let Some(entries) = table.get(key) else { continue };
        let entries = entries
            .as_array()
            .ok_or_else(|| usage(format!("auth.{key} is no list of tables: write [[auth.{key}]]")))?;
        for (at, entry) in entries.iter().enumerate() {
            let token = token(entry, list).map_err(|what| usage(format!("auth.{key}[{at}]: {what}")))?;
            if read.iter().any(|other| other.proof == token.proof) {
                return Err(usage(format!("auth.{key}[{at}]: the same {} stands above already", list.what)));
            }
            read.push(token);
        }
    }
    // An empty list might be meant as «nobody», but would mean «everybody».
    if read.is_empty() {
        return Err(usage(
            "auth.tokens is empty: add a token, or leave auth out, which opens everything".into(),
        ));
    }
    if read.len() > TOKENS_MAX {
        let found = read.len();
        return Err(usage(format!("auth has {found} entries: at most {TOKENS_MAX} are allowed")));
    }
    Ok(read)
}

/// Returns whether the file contains a token in plain text. A digest is no secret.
pub(super) fn holds_secret(auth: &Value) -> bool {
    let tokens = auth.get("tokens").and_then(Value::as_array);
    tokens.is_some_and(|tokens| tokens.iter().any(|token| token.get("token").is_some()))
}

/// A list of `auth`: `tokens` or `certificates`.
struct List {
    key: &'static str,
    /// The name of an entry in messages.
    what: &'static str,
    /// The keys that identify the client.
    proofs: &'static [&'static str],
    proof: fn(&Table) -> Result<Proof, EntryError>,
}

const LISTS: &[List] = &[
    List {
        key: "tokens",
        what: "token",
        proofs: &["token", "sha256"],
        proof: |table| digest(table).map(Proof::Token),
    },
    List { key: "certificates", what: "certificate", proofs: &["name"], proof: certificate },
];

/// Reads an entry.
fn token(entry: &Value, list: &List) -> Result<TokenSettings, EntryError> {
    let table = entry.as_table().ok_or(EntryError::NoTable)?;
    let List { what, proofs, .. } = list;
    let known = |key: &str| proofs.contains(&key) || KEYS.split(", ").any(|known| known == key);
    if let Some(key) = table.keys().find(|key| !known(key)) {
        let (key, known) = (key.clone(), format!("{}, {KEYS}", proofs.join(" or ")));
        return Err(EntryError::UnknownKey { key, what, known });
    }
    let agent = text(table, "agent")?;
    let agent = agent.ok_or(EntryError::NoAgent(what))?;
    Ok(TokenSettings {
        proof: (list.proof)(table)?,
        agent: Actor::new(agent).map_err(|error| EntryError::BadActor { key: "agent", error })?,
        roles: names(table, "roles")?
            .unwrap_or_default()
            .into_iter()
            .map(|name| Actor::new(name).map_err(|error| EntryError::BadActor { key: "roles", error }))
            .collect::<Result<_, _>>()?,
        scopes: scopes(table)?,
        namespaces: namespaces(table)?,
        rate: rate(table)?,
        expires: expires(table)?,
    })
}

fn certificate(table: &Table) -> Result<Proof, EntryError> {
    let name = text(table, "name")?.ok_or(EntryError::NoCertificateName)?;
    let found = CertificateName::new(name).map(Proof::Certificate);
    found.ok_or_else(|| EntryError::BadCertificateName(name.to_owned()))
}

/// Reads the expiry: a time, a date (the token expires when that day begins, in UTC), or epoch milliseconds.
fn expires(table: &Table) -> Result<Option<Timestamp>, EntryError> {
    let text = match table.get("expires") {
        None => return Ok(None),
        Some(Value::Integer(ms)) if *ms >= EXPIRES_MS_MIN => return Ok(Some(Timestamp(ms.unsigned_abs()))),
        Some(Value::Integer(ms)) => return Err(EntryError::BadExpiry(ms.to_string())),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Datetime(time)) => time.to_string(),
        Some(other) => return Err(EntryError::BadExpiry(other.type_str().to_owned())),
    };
    // The comparison is needed, because the date parser also accepts a time without a zone.
    let date = text.parse::<jiff::civil::Date>().ok().filter(|date| date.to_string() == text);
    let time = match date {
        Some(date) => date.to_zoned(jiff::tz::TimeZone::UTC).map(|zoned| zoned.timestamp()),
        None => text.parse::<jiff::Timestamp>(),
    };
    let ms = time.ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
    ms.map(|ms| Some(Timestamp(ms))).ok_or_else(|| EntryError::BadExpiry(format!("{text:?}")))
}

fn digest(table: &Table) -> Result<TokenDigest, EntryError> {
    match (text(table, "token")?, text(table, "sha256")?) {
        (Some(""), None) => Err(EntryError::EmptyToken),
        (Some(token), None) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(TokenDigest::of(token))
        }
        (Some(_), None) => Err(EntryError::BadToken),
        (None, Some(hex)) => TokenDigest::from_hex(hex).ok_or(EntryError::BadDigest),
        _ => Err(EntryError::TokenOrDigest),
    }
}

fn scopes(table: &Table) -> Result<Vec<Scope>, EntryError> {
    let Some(names) = names(table, "scopes")? else { return Ok(vec![Scope::Publish, Scope::Subscribe]) };
    if names.contains(&ALL) {
        return Ok(Scope::ALL.to_vec());
    }
    let known = || Scope::ALL.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ");
    let scope =
        |name: &str| name.parse().map_err(|()| EntryError::NoScope { name: name.to_owned(), known: known() });
    names.into_iter().map(scope).collect()
}

fn namespaces(table: &Table) -> Result<NamespaceRule, EntryError> {
    let Some(names) = names(table, "namespaces")? else {
        return Ok(NamespaceRule::Only(vec![Namespace::default()]));
    };
    if names.contains(&ALL) {
        return Ok(NamespaceRule::All);
    }
    let namespace = |name| Namespace::new(name).map_err(EntryError::BadNamespace);
    Ok(NamespaceRule::Only(names.into_iter().map(namespace).collect::<Result<_, _>>()?))
}

fn rate(table: &Table) -> Result<Option<Rate>, EntryError> {
    let number = |key: &'static str, min: i64| match table.get(key) {
        None => Ok(None),
        Some(Value::Integer(number)) if *number >= min => Ok(Some(number.unsigned_abs())),
        Some(_) => Err(EntryError::BadNumber { key, min }),
    };
    match (number("rate", 0)?, number("burst", 1)?) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(EntryError::BurstAlone),
        (Some(per_second), burst) => Ok(Some(Rate { per_second, burst: burst.unwrap_or(per_second.max(1)) })),
    }
}

fn names<'a>(table: &'a Table, key: &'static str) -> Result<Option<Vec<&'a str>>, EntryError> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let list = value.as_array().filter(|list| list.len() <= NAMES_MAX);
    let names = list.and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    names.map(Some).ok_or(EntryError::NoNames(key))
}

/// Describes an entry for people: whom it stands for and what it allows.
pub(crate) fn token_line(token: &TokenSettings) -> String {
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(",") };
    let scopes = list(token.scopes.iter().map(|scope| scope.as_str()).collect());
    let namespaces = match &token.namespaces {
        NamespaceRule::All => ALL.to_owned(),
        NamespaceRule::Only(names) => list(names.iter().map(Namespace::as_str).collect()),
    };
    let roles = list(token.roles.iter().map(Actor::as_str).collect());
    let proof = match &token.proof {
        Proof::Token(_) => "token=(secret)".to_owned(),
        Proof::Certificate(name) => format!("certificate={}", name.as_str()),
    };
    let expires = token.expires.map_or_else(|| "never".to_owned(), |at| at.to_string());
    let agent = &token.agent;
    format!("agent={agent} scopes={scopes} namespaces={namespaces} roles={roles} expires={expires} {proof}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<TokenSettings>, String> {
        let table: Table = text.parse().unwrap();
        let read = tokens(&table[KEY], &SettingSource::File("f".into()));
        read.map_err(|failure| failure.message().unwrap_or_default().to_owned())
    }

    #[test]
    fn what_is_left_out_is_the_safe_reading() {
        let tokens = read("[[auth.tokens]]\ntoken = 's3cret'\nagent = 'alice'").unwrap();
        assert_eq!(tokens[0].scopes, [Scope::Publish, Scope::Subscribe]);
        assert_eq!(tokens[0].namespaces, NamespaceRule::Only(vec![Namespace::default()]));
        assert!(!token_line(&tokens[0]).contains("s3cret"));
    }

    #[test]
    fn an_expiry_is_a_time_a_date_or_milliseconds() {
        let read = |value: &str| {
            read(&format!("[[auth.tokens]]\ntoken = 'x'\nagent = 'a'\nexpires = {value}")).unwrap()[0].expires
        };
        let noon = Some(Timestamp(1_801_396_800_000));
        for value in
            ["'2027-01-31T12:00:00Z'", "2027-01-31T12:00:00Z", "'2027-01-31T13:00:00+01:00'", "1801396800000"]
        {
            assert_eq!(read(value), noon, "{value}");
        }
        let midnight = Some(Timestamp(1_801_353_600_000));
        assert_eq!((read("'2027-01-31'"), read("2027-01-31")), (midnight, midnight));
    }

    #[test]
    fn certificates_stand_beside_tokens() {
        let certificate =
            "[[auth.certificates]]\nname = 'billing.example'\nagent = 'billing'\nscopes = ['admin']\n";
        let found = read(&format!("{certificate}[[auth.tokens]]\ntoken = 'x'\nagent = 'a'")).unwrap();
        let named = CertificateName::new("billing.example").unwrap();
        assert_eq!((found.len(), &found[1].proof), (2, &Proof::Certificate(named)));
        let line = token_line(&found[1]);
        assert!(line.contains("agent=billing") && line.ends_with("certificate=billing.example"), "{line}");
        for (text, message) in [
            (format!("{certificate}{certificate}"), "auth.certificates[1]: the same certificate"),
            ("[[auth.certificates]]\nagent = 'a'".to_owned(), "name is missing"),
            ("[[auth.certificates]]\nname = '*.example'\nagent = 'a'".to_owned(), "name is \"*.example\""),
            ("[[auth.certificates]]\nname = 'a'\nagent = 'a'\ntoken = 'x'".to_owned(), "token is no setting"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (entry, message) in [
            ("agent = 'a'", "give either token or sha256"),
            ("token = 's3cret'", "agent is missing"),
            ("token = 's3cret'\nsha256 = 'ab'\nagent = 'a'", "give either token or sha256"),
            ("sha256 = 's3cret'\nagent = 'a'", "sha256 must be 64 hexadecimal digits"),
            ("token = 's3cret x'\nagent = 'a'", "printable ASCII"),
            ("token = 's3cret'\nagent = '!a'", "agent is refused"),
            ("token = 's3cret'\nagent = 'a'\nscopes = ['root']", "\"root\" is no scope"),
            ("token = 's3cret'\nagent = 'a'\nnamespaces = ['a/b']", "namespaces is refused"),
            ("token = 's3cret'\nagent = 'a'\ncolour = 1", "colour is no setting of a token"),
            ("token = 's3cret'\nagent = 'a'\nor = 1", "or is no setting of a token"),
            ("token = 's3cret'\nagent = 'a'\nburst = 5", "burst is given without rate"),
            ("token = 's3cret'\nagent = 'a'\nrate = -5", "rate must be a whole number"),
            ("token = 's3cret'\nagent = 'a'\nexpires = 'soon'", "expires is \"soon\": give a time such as"),
            ("token = 's3cret'\nagent = 'a'\nexpires = '2027-02-30'", "expires is"),
            ("token = 's3cret'\nagent = 'a'\nexpires = '2027-01-31T12:00:00'", "expires is"),
            ("token = 's3cret'\nagent = 'a'\nexpires = 2027-01-31T12:00:00", "expires is"),
            ("token = 's3cret'\nagent = 'a'\nexpires = 1800000000", "expires is 1800000000: give"),
            ("token = 's3cret'\nagent = 'a'\nexpires = -1", "expires is -1"),
            ("token = 's3cret'\nagent = 'a'\nexpires = true", "expires is boolean"),
            ("token = 's3cret'\nagent = 'a'\nname = 'x'", "name is no setting of a token"),
        ] {
            let error = read(&format!("[[auth.tokens]]\n{entry}")).unwrap_err();
            assert!(error.contains(message) && error.contains("auth.tokens[0]"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(read("[auth]").is_err() && read("[auth]\ntokens = []").is_err());
        assert!(read("auth = 1").is_err() && read("[auth]\nusers = 1").is_err());
    }
}
