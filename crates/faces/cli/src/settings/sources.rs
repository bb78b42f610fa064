//! The sources of settings: defaults, then the file, then the environment, then flags.

use std::net::SocketAddr;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::failure::Failure;
use crate::settings::flags::CONFIG_FLAG;
use crate::settings::main_settings::{DEMO_AUDIT, DEMO_STORE};
use crate::settings::{Also, Config, SettingDef, SettingKind, SettingValue, all};
use crate::settings::{auth, capability, mongo_env};

const ENV_PREFIX: &str = "MILLRACE_";
const ENV_CONFIG: &str = "MILLRACE_CONFIG";
/// Variables that Kubernetes sets in every container beside a service called `millrace`.
const ENV_FOREIGN: [&str; 3] = ["MILLRACE_SERVICE_", "MILLRACE_PORT", "MILLRACE_PORT_"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource {
    Default,
    File(String),
    Env(String),
    Flag,
}

impl std::fmt::Display for SettingSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingSource::Default => f.write_str("default"),
            SettingSource::File(path) => write!(f, "file {path}"),
            SettingSource::Env(name) => write!(f, "environment {name}"),
            SettingSource::Flag => f.write_str("flag"),
        }
    }
}

/// The config, and the source of each setting's value.
pub(crate) struct Effective {
    pub(crate) config: Config,
    sources: Vec<SettingSource>,
    /// Where the tokens came from. Tokens have no flag and no environment variable, because both are visible to others
    /// on the machine.
    pub(crate) tokens_from: Option<SettingSource>,
    /// Where the capabilities came from. Capabilities are tables, which fit neither a flag nor a variable.
    pub(crate) capabilities_from: Option<SettingSource>,
    /// The path of the settings file, if it contains a token in plain text instead of its digest.
    pub(crate) secrets_in: Option<String>,
}

impl Effective {
    pub(crate) fn settings(
        &self,
    ) -> impl Iterator<Item = (&'static SettingDef, SettingValue, &SettingSource)> {
        all().zip(&self.sources).map(|(setting, source)| (setting, (setting.get)(&self.config), source))
    }

    pub(crate) fn source(&self, name: &str) -> &SettingSource {
        let at = all().position(|setting| setting.name == name).unwrap_or(usize::MAX);
        self.sources.get(at).unwrap_or(&SettingSource::Default)
    }

    fn set(&mut self, at: usize, setting: &SettingDef, value: SettingValue, source: SettingSource) {
        (setting.set)(&mut self.config, value);
        self.sources[at] = source;
    }
}

pub(crate) fn resolve(matches: &ArgMatches) -> Result<Effective, Failure> {
    let mut effective = Effective {
        config: Config::default(),
        sources: vec![SettingSource::Default; all().count()],
        tokens_from: None,
        capabilities_from: None,
        secrets_in: None,
    };
    if let Some(path) = config_path(matches)? {
        apply_file(&mut effective, &path)?;
    }
    refuse_unknown_env()?;
    for (at, setting) in all().enumerate() {
        if let Some((value, name)) = from_env(setting, &effective.config)? {
            effective.set(at, setting, value, SettingSource::Env(name));
        }
        if let Some(value) = from_flags(setting, matches)? {
            effective.set(at, setting, value, SettingSource::Flag);
        }
        if setting.name == "store"
            && effective.sources[at] == SettingSource::Default
            && let Some(url) = mongo_env::store()?
        {
            effective.set(at, setting, SettingValue::Text(url), SettingSource::Env(mongo_env::URL.into()));
        }
    }
    if effective.config.demo {
        apply_demo_defaults(&mut effective);
    }
    Ok(effective)
}

/// The demo has other defaults than a server at work; what the user has set stays.
fn apply_demo_defaults(effective: &mut Effective) {
    if *effective.source("store") == SettingSource::Default {
        effective.config.store = DEMO_STORE.to_owned();
    }
    if *effective.source("audit") == SettingSource::Default {
        effective.config.server.audit = DEMO_AUDIT.into_iter().collect();
    }
}

fn bad_value(setting: &SettingDef, found: &str, source: &SettingSource) -> Failure {
    let found = setting.kind.shown(&SettingValue::Text(found.to_owned()));
    let accepted = setting.kind.accepted();
    Failure::Usage(format!("{} is {found:?} ({source}): it must be {accepted}", setting.name))
}

fn config_path(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    match matches.try_get_one::<String>(CONFIG_FLAG) {
        Ok(Some(path)) => Ok(Some(path.clone())),
        _ => env(ENV_CONFIG),
    }
}

fn apply_file(effective: &mut Effective, path: &str) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("config is {path:?}: the file cannot be read: {error}")))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // Do not use the error's own text: it quotes the line, which may contain a token.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let (line, what) = (before.matches('\n').count() + 1, error.message());
        Failure::Usage(format!("config is {path:?}: the file is not valid TOML: line {line}: {what}"))
    })?;
    let source = SettingSource::File(path.into());
    for (key, found) in table {
        if key == auth::KEY {
            effective.config.server.tokens = auth::tokens(&found, &source)?;
            if auth::holds_secret(&found) {
                effective.secrets_in = Some(path.to_owned());
            }
            effective.tokens_from = Some(source.clone());
            continue;
        }
        if key == capability::KEY {
            effective.config.server.capabilities = capability::capabilities(&found, &source)?;
            effective.capabilities_from = Some(source.clone());
            continue;
        }
        let Some((at, setting)) = all().enumerate().find(|(_, setting)| setting.file_key() == key) else {
            return Err(Failure::Usage(format!(
                "{key} = {} ({source}) is no setting{}",
                unless_secret(&key, shown_briefly(&found)),
                meant(&key, SettingDef::file_key)
            )));
        };
        let value = from_toml(setting, &found).ok_or_else(|| bad_value(setting, &shown(&found), &source))?;
        effective.set(at, setting, value, source.clone());
        if matches!(setting.kind, SettingKind::Secret) {
            effective.secrets_in = Some(path.to_owned());
        }
    }
    Ok(())
}

fn from_toml(setting: &SettingDef, found: &toml::Value) -> Option<SettingValue> {
    match (found, setting.kind) {
        (toml::Value::Integer(number), SettingKind::Number { .. }) => setting.kind.read(&number.to_string()),
        (toml::Value::Boolean(flag), SettingKind::Flag) => Some(SettingValue::Flag(*flag)),
        (toml::Value::Array(items), SettingKind::List { check, .. }) => {
            let items: Option<Vec<_>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            items.filter(|items| items.iter().all(|item| check(item))).map(SettingValue::List)
        }
        (
            toml::Value::String(text),
            SettingKind::Text { .. }
            | SettingKind::Address { .. }
            | SettingKind::Choice(_)
            | SettingKind::List { .. }
            | SettingKind::Secret,
        ) => setting.kind.read(text),
        _ => None,
    }
}

fn shown(found: &toml::Value) -> String {
    found.as_str().map_or_else(|| found.to_string(), str::to_owned)
}

/// Returns the value for a message. Tables are not shown: a misspelt `[[auth.tokens]]` is one.
fn shown_briefly(found: &toml::Value) -> String {
    match found {
        toml::Value::Table(_) => "a table".into(),
        toml::Value::Array(_) => "a list".into(),
        found => found.to_string(),
    }
}

/// Hides the value if the name of an unknown setting looks like a misspelt secret.
fn unless_secret(name: &str, value: String) -> String {
    let name = name.to_lowercase();
    let secret = ["token", "secret", "password"].iter().any(|word| name.contains(word));
    if secret { "(secret)".into() } else { value }
}

fn from_env(setting: &SettingDef, config: &Config) -> Result<Option<(SettingValue, String)>, Failure> {
    let own = std::iter::once((setting.env_name(), Also::SameValue));
    let also = setting.also.iter().map(|(name, how)| ((*name).to_owned(), *how));
    // Millrace's own variable comes first, because it is the more deliberate one.
    for (name, how) in own.chain(also) {
        let Some(text) = env(&name)? else { continue };
        let read = match how {
            Also::SameValue => setting.kind.read(&text),
            Also::Port => with_port(&(setting.get)(config).to_string(), &text).map(SettingValue::Text),
        };
        return match (read, how) {
            (Some(value), _) => Ok(Some((value, name))),
            (None, Also::SameValue) => Err(bad_value(setting, &text, &SettingSource::Env(name))),
            (None, Also::Port) => {
                Err(Failure::Usage(format!("{name} is {text:?}: it must be a port from 0 to 65535")))
            }
        };
    }
    Ok(None)
}

fn with_port(address: &str, port: &str) -> Option<String> {
    let mut address: SocketAddr = address.parse().ok()?;
    address.set_port(port.parse().ok()?);
    Some(address.to_string())
}

/// Returns the value of a variable. An empty variable counts as not set.
pub(super) fn env(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(found)) => {
            Err(Failure::Usage(format!("the environment variable {name} is {found:?}: it must be UTF-8")))
        }
    }
}

fn refuse_unknown_env() -> Result<(), Failure> {
    for (name, found) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(ENV_PREFIX)) else { continue };
        let foreign = ENV_FOREIGN
            .iter()
            .any(|foreign| name == *foreign || foreign.ends_with('_') && name.starts_with(foreign));
        if name != ENV_CONFIG && !foreign && !all().any(|setting| setting.env_name() == name) {
            let hint = meant(name, SettingDef::env_name);
            return Err(Failure::Usage(format!(
                "{name}={} (environment) is no setting{hint}",
                unless_secret(name, found.to_string_lossy().into_owned())
            )));
        }
    }
    Ok(())
}

/// Returns a hint to append to «is no setting».
fn meant(found: &str, spelled: fn(&SettingDef) -> String) -> String {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let near = all().map(spelled).find(|name| plain(name) == plain(found));
    let near = near.or_else(|| {
        all()
            .map(spelled)
            .find(|name| plain(name).starts_with(&plain(found)) || plain(found).starts_with(&plain(name)))
    });
    let hint = near.map_or_else(String::new, |name| format!(", {name} is"));
    format!("{hint}: `millrace config print` shows all of them")
}

fn from_flags(setting: &SettingDef, matches: &ArgMatches) -> Result<Option<SettingValue>, Failure> {
    let Ok(Some(given)) = matches.try_get_many::<String>(setting.name) else { return Ok(None) };
    if matches.value_source(setting.name) != Some(ValueSource::CommandLine) {
        return Ok(None);
    }
    let text = given.cloned().collect::<Vec<_>>().join(",");
    setting.kind.read(&text).map(Some).ok_or_else(|| bad_value(setting, &text, &SettingSource::Flag))
}
