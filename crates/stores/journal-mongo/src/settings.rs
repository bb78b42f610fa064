//! The address of the engine and the options of this crate, as text that people write. Parses without any request.
//!
//! The URL holds a password, so this file also decides what may be shown: hosts and database, nothing else.

use std::fmt;
use std::time::Duration;

use millrace_journal::JournalError;
use mongodb::options::ConnectionString;

const DATABASE_DEFAULT: &str = "millrace";
const TIMEOUT_MS_DEFAULT: u64 = 10_000;
const TIMEOUT_MS_MIN: u64 = 100;
const TIMEOUT_MS_MAX: u64 = 600_000;
/// MongoDB allows fewer than 64 bytes.
const DATABASE_BYTES_MAX: usize = 63;

/// Options that the journal sets itself, because its promises depend on them, and the only value of the URL that says
/// the same. Another value is ignored, and a remark of `check` names the option.
const OWN_OPTIONS: &[(&str, Option<&str>)] = &[
    ("w", Some("majority")),
    ("journal", Some("true")),
    ("wtimeoutms", None),
    ("readconcernlevel", Some("majority")),
    ("readpreference", Some("primary")),
    ("readpreferencetags", None),
    ("maxstalenessseconds", None),
    ("retrywrites", Some("false")),
    ("retryreads", Some("false")),
    ("adaptiveretries", Some("false")),
    ("maxadaptiveretries", Some("0")),
    ("serverselectiontimeoutms", None),
    ("connecttimeoutms", None),
    ("heartbeatfrequencyms", None),
];

/// Options whose values are secrets.
const SECRET_OPTIONS: &[&str] =
    &["authmechanismproperties", "proxypassword", "tlscertificatekeyfilepassword"];

/// Where the journal is. `Debug` and `Display` show hosts and database only.
#[derive(Clone)]
pub struct MongoSettings {
    /// Without the options that the driver must not see. Holds secrets.
    url: String,
    /// Hosts as written in the URL.
    hosts: String,
    database: String,
    timeout: Duration,
    allows_unsynced: bool,
    ignored_options: Vec<String>,
    secrets: Vec<String>,
}

impl MongoSettings {
    /// Reads a URL `mongodb://…/database?timeout_ms=10000` or `mongodb+srv://…`. The database is `millrace` if the URL
    /// names none.
    ///
    /// # Errors
    ///
    /// [`JournalError::Refused`] with a text that says what is wrong and shows no secret.
    pub fn from_url(url: &str) -> Result<MongoSettings, JournalError> {
        MongoSettings::parse(url, None)
    }

    /// Reads the two values that programs often keep apart: `MONGO_URL` and `MONGO_DB`. `database` is where the journal
    /// is; a database in the URL then only says where the user is defined (`authSource`).
    ///
    /// # Errors
    ///
    /// As for [`MongoSettings::from_url`].
    pub fn from_url_and_database(url: &str, database: &str) -> Result<MongoSettings, JournalError> {
        MongoSettings::parse(url, Some(database))
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the time after which the outcome of a request is unknown.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns whether an engine may be used that confirms writes before they are on disk: for tests only.
    pub(crate) fn allows_unsynced(&self) -> bool {
        self.allows_unsynced
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the names of options in the URL that have no effect.
    pub(crate) fn ignored_options(&self) -> &[String] {
        &self.ignored_options
    }

    /// Returns the text, or a stand-in if it holds a secret of the URL. For texts of the driver and of the engine.
    pub(crate) fn without_secrets(&self, text: String) -> String {
        if self.secrets.iter().any(|secret| text.contains(secret.as_str())) {
            return "(text not shown: it contains a secret of the store's URL)".to_owned();
        }
        text
    }

    fn parse(url: &str, database: Option<&str>) -> Result<MongoSettings, JournalError> {
        let parts = UrlParts::split(url)?;
        let mut settings = MongoSettings {
            url: String::new(),
            hosts: parts.hosts.to_owned(),
            database: database.or(parts.database).unwrap_or(DATABASE_DEFAULT).to_owned(),
            timeout: Duration::from_millis(TIMEOUT_MS_DEFAULT),
            allows_unsynced: false,
            ignored_options: Vec::new(),
            secrets: parts.secrets(),
        };
        check_database(&settings.database)?;
        let mut kept = Vec::new();
        for (option, value) in parts.options() {
            if option.is_empty() || value.is_empty() {
                return Err(refused(
                    "an option in the store's URL has no name or no value: write ?name=value&name=value",
                ));
            }
            if settings.is_for_driver(option, value)? {
                kept.push(format!("{option}={value}"));
            }
        }
        let slash = if parts.has_slash { "" } else { "/" };
        settings.url = format!("{}{slash}?{}", parts.before_options, kept.join("&"));
        match ConnectionString::parse(&settings.url) {
            Ok(_) => Ok(settings),
            Err(error) => {
                Err(refused(settings.without_secrets(format!("the store's URL is wrong: {}", error.kind))))
            }
        }
    }

    /// Takes the options of this crate. Returns whether the driver gets this one.
    fn is_for_driver(&mut self, option: &str, value: &str) -> Result<bool, JournalError> {
        let lower = option.to_ascii_lowercase();
        if lower == "timeout_ms" {
            self.timeout = parse_timeout(value)?;
            return Ok(false);
        }
        if lower == "allow_unsynced" {
            self.allows_unsynced = value
                .parse()
                .map_err(|_| refused("allow_unsynced in the store's URL must be true or false"))?;
            return Ok(false);
        }
        if lower == "sockettimeoutms" || lower == "waitqueuetimeoutms" {
            return Err(refused(format!(
                "the option {option} is not supported in the store's URL: use timeout_ms, which limits every request"
            )));
        }
        let Some((_, same)) = OWN_OPTIONS.iter().find(|(own, _)| *own == lower) else {
            return Ok(true);
        };
        if !same.is_some_and(|same| value.eq_ignore_ascii_case(same)) {
            self.ignored_options.push(option.to_owned());
        }
        Ok(false)
    }
}

impl fmt::Display for MongoSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mongodb://{}/{}", self.hosts, self.database)
    }
}

impl fmt::Debug for MongoSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoSettings")
            .field("hosts", &self.hosts)
            .field("database", &self.database)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The pieces of a URL, split as the driver splits it.
struct UrlParts<'a> {
    /// Scheme, user, hosts and database.
    before_options: &'a str,
    user_info: Option<&'a str>,
    hosts: &'a str,
    /// Whether a slash follows the hosts: options may only stand behind one.
    has_slash: bool,
    database: Option<&'a str>,
    options: &'a str,
}

impl<'a> UrlParts<'a> {
    fn split(url: &'a str) -> Result<UrlParts<'a>, JournalError> {
        let form = "expected mongodb://user:password@host:port/database or mongodb+srv://user:password@host/database";
        // The driver's own parser panics at some characters outside of ASCII after a percent sign.
        if !url.is_ascii() || url.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
            return Err(refused(
                "the store's URL has a space or a character outside of ASCII: percent-encode it, for example %20",
            ));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(refused(format!("the store's URL has no scheme: {form}")));
        };
        if scheme != "mongodb" && scheme != "mongodb+srv" {
            return Err(refused(format!("the store's URL has another scheme: {form}")));
        }
        let (before, options) = rest.split_once('?').unwrap_or((rest, ""));
        // An @ here belongs to a password with a bare question mark. No piece of such a URL can be shown.
        if options.contains('@') {
            return Err(refused(
                "the user or password in the store's URL must be percent-encoded (? is %3F, @ is %40, / is %2F)",
            ));
        }
        let (user_info, location) = match before.rsplit_once('@') {
            Some((user_info, location)) => (Some(user_info), location),
            None => (None, before),
        };
        let (hosts, database) = location.split_once('/').unwrap_or((location, ""));
        if hosts.is_empty() {
            return Err(refused(format!("the store's URL has no host: {form}")));
        }
        let before_options = &url[..scheme.len() + "://".len() + before.len()];
        let database = Some(database).filter(|database| !database.is_empty());
        Ok(UrlParts {
            before_options,
            user_info,
            hosts,
            has_slash: location.contains('/'),
            database,
            options,
        })
    }

    fn options(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.options.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// Returns every spelling in which a secret of the URL could appear in a text.
    fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        if let Some((_, password)) = self.user_info.and_then(|user_info| user_info.split_once(':')) {
            secrets.extend([password.to_owned(), decode_percent(password)]);
        }
        for (option, value) in self.options() {
            if SECRET_OPTIONS.contains(&option.to_ascii_lowercase().as_str()) {
                for piece in value.split([',', ':']).chain([value]) {
                    secrets.extend([piece.to_owned(), decode_percent(piece)]);
                }
            }
        }
        secrets.retain(|secret| !secret.is_empty());
        secrets
    }
}

fn parse_timeout(value: &str) -> Result<Duration, JournalError> {
    let range = TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX;
    match value.parse::<u64>() {
        Ok(timeout_ms) if range.contains(&timeout_ms) => Ok(Duration::from_millis(timeout_ms)),
        _ => Err(refused(format!(
            "timeout_ms in the store's URL must be a number from {TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX}"
        ))),
    }
}

fn check_database(name: &str) -> Result<(), JournalError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > DATABASE_BYTES_MAX || !name.bytes().all(is_letter) {
        return Err(refused(format!(
            "the database of the journal must have a name of 1 to {DATABASE_BYTES_MAX} letters, digits, _ and -"
        )));
    }
    if ["admin", "config", "local"].contains(&name.to_ascii_lowercase().as_str()) {
        return Err(refused(format!(
            "the database {name} is MongoDB's own: name another one; if users are defined there, write \
             /{DATABASE_DEFAULT}?authSource={name}"
        )));
    }
    Ok(())
}

fn decode_percent(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let escape = match rest {
            [b'%', high, low, ..] => hex_digit(*high).zip(hex_digit(*low)),
            _ => None,
        };
        match escape {
            Some((high, low)) => {
                decoded.push(high * 16 + low);
                rest = &rest[3..];
            }
            None => {
                decoded.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn refused(text: impl Into<String>) -> JournalError {
    JournalError::Refused(text.into().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "mongodb://ann:p%40ssword@db1:27017,db2/orders?replicaSet=rs0&timeout_ms=2500";

    fn refusal(url: &str) -> String {
        match MongoSettings::from_url(url) {
            Err(JournalError::Refused(cause)) => cause.to_string(),
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn a_url_names_hosts_database_and_timeout() {
        let settings = MongoSettings::from_url(URL).unwrap();
        assert_eq!(settings.database(), "orders");
        assert_eq!(settings.timeout(), Duration::from_millis(2500));
        assert_eq!(settings.url(), "mongodb://ann:p%40ssword@db1:27017,db2/orders?replicaSet=rs0");
        assert_eq!(settings.to_string(), "mongodb://db1:27017,db2/orders");
        assert!(!settings.allows_unsynced());
        assert!(MongoSettings::from_url("mongodb://db1/x?allow_unsynced=true").unwrap().allows_unsynced());
        let plain = MongoSettings::from_url("mongodb://db1").unwrap();
        assert_eq!((plain.database(), plain.timeout()), ("millrace", Duration::from_secs(10)));
        assert_eq!(plain.url(), "mongodb://db1/?");
        MongoSettings::from_url("mongodb+srv://ann:pw@cluster0.example.net/?retryWrites=true").unwrap();
    }

    #[test]
    fn a_database_beside_the_url_leaves_the_urls_own_for_authentication() {
        let settings = MongoSettings::from_url_and_database("mongodb://ann:pw@db1/admin", "events").unwrap();
        assert_eq!(settings.database(), "events");
        assert_eq!(settings.url(), "mongodb://ann:pw@db1/admin?");
    }

    #[test]
    fn options_that_the_journal_sets_itself_are_taken_out_and_named_if_they_say_otherwise() {
        let url =
            "mongodb://db1/x?retryWrites=true&w=majority&readPreference=secondary&appName=shop&journal=TRUE";
        let settings = MongoSettings::from_url(url).unwrap();
        assert_eq!(settings.url(), "mongodb://db1/x?appName=shop");
        assert_eq!(settings.ignored_options(), ["retryWrites", "readPreference"]);
    }

    #[test]
    fn wrong_urls_are_refused_with_a_sentence() {
        assert!(refusal("db1:27017").contains("no scheme"));
        assert!(refusal("postgres://db1").contains("another scheme"));
        assert!(refusal("mongodb:///x").contains("no host"));
        assert!(refusal("mongodb://db1/admin").contains("authSource=admin"));
        assert!(refusal("mongodb://db1/local").contains("local"));
        assert!(refusal("mongodb://db1/a.b").contains("letters"));
        assert!(refusal("mongodb://db1/x?timeout_ms=5").contains("timeout_ms"));
        assert!(refusal("mongodb://db1/x?timeout_ms=soon").contains("timeout_ms"));
        assert!(refusal("mongodb://db1/x?allow_unsynced=1").contains("true or false"));
        assert!(refusal("mongodb://db1/x?socketTimeoutMS=5").contains("timeout_ms"));
        assert!(refusal("mongodb://db1/x?replicaSet").contains("no value"));
        assert!(refusal("mongodb://db1/x?=rs0").contains("no name"));
        assert!(refusal("mongodb://db1/x?replicaSett=rs0").contains("URL is wrong"));
    }

    #[test]
    fn no_text_shows_a_secret() {
        let settings = MongoSettings::from_url(URL).unwrap();
        let shown = format!("{settings:?} {settings}");
        assert!(!shown.contains("ssword") && !shown.contains("ann"), "{shown}");
        let token = "authMechanismProperties=AWS_SESSION_TOKEN:hush,other";
        for url in [
            "mongodb://ann:hush%zz@db1/x",
            "mongodb://ann:hush%€@db1/x",
            "mongodb://ann:hu?hush@db1/x",
            "mongodb://ann:hush/hush@db1/x",
            "mongodb://ann:hush:hush@db1/x",
            "mongodb://ann:hush@db1:hush/x",
            &format!("mongodb://db1/x?{token}"),
        ] {
            let text = refusal(url);
            assert!(!text.contains("hush"), "{text}");
        }
        let said = settings.without_secrets("bad word p@ssword".to_owned());
        assert!(!said.contains("ssword"), "{said}");
        assert_eq!(settings.without_secrets("not primary".to_owned()), "not primary");
    }
}
