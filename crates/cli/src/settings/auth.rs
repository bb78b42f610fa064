//! `[[auth.tokens]]` of the file: who may come in. The one setting without a flag or an environment variable, because
//! others on the machine can see those.
//!
//! What is left out is the safe reading: the namespace `default` only, and no scope `admin`.

use millrace_model::{Actor, Namespace};
use millrace_server::{NamespaceRule, Rate, Scope, TOKENS_MAX, TokenDigest, TokenSettings};
use toml::{Table, Value};

use crate::failure::Failure;
use crate::settings::Source;

pub(super) const KEY: &str = "auth";
const ALL: &str = "*";
const KEYS: &str = "token or sha256, agent, roles, scopes, namespaces, rate, burst";
const NAMES_MAX: usize = 64;

pub(super) fn tokens(found: &Value, source: &Source) -> Result<Vec<TokenSettings>, Failure> {
    let usage = |what: String| Failure::Usage(format!("{what} ({source})"));
    let table = found.as_table().ok_or_else(|| usage("auth is no table: write [[auth.tokens]]".into()))?;
    if let Some(key) = table.keys().find(|key| *key != "tokens") {
        return Err(usage(format!("auth.{key} is no setting: auth has tokens only")));
    }
    let empty = Vec::new();
    let list = match table.get("tokens") {
        None => &empty,
        Some(tokens) => tokens
            .as_array()
            .ok_or_else(|| usage("auth.tokens is no list of tables: write [[auth.tokens]]".into()))?,
    };
    // It might be meant as «nobody», and would be «everybody».
    if list.is_empty() {
        return Err(usage(
            "auth.tokens is empty: add a token, or leave auth out, which opens everything".into(),
        ));
    }
    if list.len() > TOKENS_MAX {
        return Err(usage(format!(
            "auth.tokens has {} entries: at most {TOKENS_MAX} are allowed",
            list.len()
        )));
    }
    let mut read: Vec<TokenSettings> = Vec::with_capacity(list.len());
    for (at, entry) in list.iter().enumerate() {
        let token = token(entry).map_err(|what| usage(format!("auth.tokens[{at}]: {what}")))?;
        if read.iter().any(|other| other.digest == token.digest) {
            return Err(usage(format!("auth.tokens[{at}]: the same token stands above already")));
        }
        read.push(token);
    }
    Ok(read)
}

/// The message never holds the value of `token` or `sha256`.
fn token(entry: &Value) -> Result<TokenSettings, String> {
    let table = entry.as_table().ok_or("it is no table")?;
    let known = |key: &str| KEYS.split([' ', ',']).any(|known| known == key && key != "or");
    if let Some(key) = table.keys().find(|key| !known(key)) {
        return Err(format!("{key} is no setting of a token: there are {KEYS}"));
    }
    let agent = text(table, "agent")?.ok_or("agent is missing: name whom the token stands for")?;
    Ok(TokenSettings {
        digest: digest(table)?,
        agent: Actor::new(agent).map_err(|error| format!("agent is refused: {error}"))?,
        roles: names(table, "roles")?
            .unwrap_or_default()
            .into_iter()
            .map(|name| Actor::new(name).map_err(|error| format!("roles is refused: {error}")))
            .collect::<Result<_, _>>()?,
        scopes: scopes(table)?,
        namespaces: namespaces(table)?,
        rate: rate(table)?,
    })
}

fn digest(table: &Table) -> Result<TokenDigest, String> {
    match (text(table, "token")?, text(table, "sha256")?) {
        (Some(""), None) => Err("token is empty".into()),
        (Some(token), None) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(TokenDigest::of(token))
        }
        (Some(_), None) => {
            Err("token must be printable ASCII without spaces, as it is sent in a header".into())
        }
        (None, Some(hex)) => {
            TokenDigest::from_hex(hex).ok_or_else(|| "sha256 must be 64 hexadecimal digits".into())
        }
        _ => Err("give either token or sha256".into()),
    }
}

fn scopes(table: &Table) -> Result<Vec<Scope>, String> {
    let Some(names) = names(table, "scopes")? else { return Ok(vec![Scope::Publish, Scope::Subscribe]) };
    if names.contains(&ALL) {
        return Ok(Scope::ALL.to_vec());
    }
    let known = || Scope::ALL.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ");
    let scope = |name: &str| {
        name.parse().map_err(|()| format!("{name:?} is no scope: there are {} and {ALL} for all", known()))
    };
    names.into_iter().map(scope).collect()
}

fn namespaces(table: &Table) -> Result<NamespaceRule, String> {
    let Some(names) = names(table, "namespaces")? else {
        return Ok(NamespaceRule::Only(vec![Namespace::default()]));
    };
    if names.contains(&ALL) {
        return Ok(NamespaceRule::All);
    }
    let namespace = |name| Namespace::new(name).map_err(|error| format!("namespaces is refused: {error}"));
    Ok(NamespaceRule::Only(names.into_iter().map(namespace).collect::<Result<_, _>>()?))
}

fn rate(table: &Table) -> Result<Option<Rate>, String> {
    let number = |key: &str, min: i64| match table.get(key) {
        None => Ok(None),
        Some(Value::Integer(number)) if *number >= min => Ok(Some(number.unsigned_abs())),
        Some(_) => Err(format!("{key} must be a whole number from {min} on")),
    };
    match (number("rate", 0)?, number("burst", 1)?) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err("burst is given without rate: give both".into()),
        (Some(per_second), burst) => Ok(Some(Rate { per_second, burst: burst.unwrap_or(per_second.max(1)) })),
    }
}

fn text<'a>(table: &'a Table, key: &str) -> Result<Option<&'a str>, String> {
    let value = table.get(key);
    value.map(|value| value.as_str().ok_or_else(|| format!("{key} must be text"))).transpose()
}

fn names<'a>(table: &'a Table, key: &str) -> Result<Option<Vec<&'a str>>, String> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let list = value.as_array().filter(|list| list.len() <= NAMES_MAX);
    let names = list.and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    names.map(Some).ok_or_else(|| format!("{key} must be a list of at most {NAMES_MAX} texts"))
}

/// For people: whom a token stands for and what it is good for.
pub(crate) fn token_line(token: &TokenSettings) -> String {
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(",") };
    let scopes = list(token.scopes.iter().map(|scope| scope.as_str()).collect());
    let namespaces = match &token.namespaces {
        NamespaceRule::All => ALL.to_owned(),
        NamespaceRule::Only(names) => list(names.iter().map(Namespace::as_str).collect()),
    };
    let roles = list(token.roles.iter().map(Actor::as_str).collect());
    format!("agent={} scopes={scopes} namespaces={namespaces} roles={roles} token=(secret)", token.agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<TokenSettings>, String> {
        let table: Table = text.parse().unwrap();
        let read = tokens(&table[KEY], &Source::File("f".into()));
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
        ] {
            let error = read(&format!("[[auth.tokens]]\n{entry}")).unwrap_err();
            assert!(error.contains(message) && error.contains("auth.tokens[0]"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(read("[auth]").is_err() && read("[auth]\ntokens = []").is_err());
        assert!(read("auth = 1").is_err() && read("[auth]\nusers = 1").is_err());
    }
}
