//! The URL of a store on object storage: what is where, and how to talk to it. Credentials are not in it.

use std::fmt;
use std::time::Duration;

use object_store::path::Path;
use url::Url;

use crate::error::ObjectOpenError;
use crate::provider::Provider;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const TIMEOUT_MS_MIN: u64 = 100;
const TIMEOUT_MS_MAX: u64 = 600_000;
/// The parameters of a URL, for the error that lists them.
const PARAMETERS: &str = "endpoint, region, path_style, allow_http, replicated, account, timeout_ms";

/// A parsed URL, such as `s3://bucket/prefix?region=eu-central-1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    pub(crate) provider: Provider,
    /// The bucket, or the container of Azure.
    pub(crate) bucket: String,
    pub(crate) prefix: Path,
    pub(crate) endpoint: Option<Url>,
    pub(crate) region: Option<String>,
    pub(crate) path_style: Option<bool>,
    pub(crate) allow_http: bool,
    pub(crate) replicated: Option<bool>,
    /// The storage account of Azure.
    pub(crate) account: Option<String>,
    /// How long a request may take, without the time for its bytes.
    pub(crate) timeout: Duration,
}

impl ObjectUrl {
    /// Reads a URL. Returns `None` if its scheme belongs to another kind of store.
    ///
    /// # Errors
    ///
    /// [`ObjectOpenError::Url`] with what is wrong and what would be right.
    pub fn parse(text: &str) -> Option<Result<ObjectUrl, ObjectOpenError>> {
        let (scheme, _) = text.split_once("://")?;
        let provider = Provider::of_scheme(scheme)?;
        Some(read(provider, text).map_err(ObjectOpenError::Url))
    }
}

/// Without parameters: where the store is, for log lines and errors.
impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.provider.scheme(), self.bucket)?;
        if self.prefix.is_root() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

fn read(provider: Provider, text: &str) -> Result<ObjectUrl, String> {
    // Not a word of the text in these errors: it may hold a secret that was put there by mistake.
    let url = Url::parse(text).map_err(|error| format!("{error}; an example is s3://bucket/prefix"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials do not belong into the URL: set them in the environment \
                    (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://)"
            .to_owned());
    }
    if url.port().is_some() {
        return Err("a bucket has no port: name the server with ?endpoint=https://host:port".to_owned());
    }
    if url.fragment().is_some() {
        return Err("a part that begins with # is not known: escape # as %23".to_owned());
    }
    let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
    let bucket = bucket.ok_or("the bucket is missing; an example is s3://bucket/prefix")?.to_owned();
    if bucket.ends_with("--x-s3") {
        return Err(format!(
            "{bucket} is a directory bucket, whose listings are not in order: use a general one"
        ));
    }
    let prefix = Path::from_url_path(url.path()).map_err(|error| format!("the prefix: {error}"))?;
    let mut read = ObjectUrl {
        provider,
        bucket,
        prefix,
        endpoint: None,
        region: None,
        path_style: None,
        allow_http: false,
        replicated: None,
        account: None,
        timeout: TIMEOUT_DEFAULT,
    };
    for (name, value) in url.query_pairs() {
        read.set(&name, &value)?;
    }
    Ok(read)
}

impl ObjectUrl {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "endpoint" => self.endpoint = Some(endpoint("endpoint", value)?),
            "region" => self.region = Some(value.to_owned()),
            "path_style" => self.path_style = Some(truth(name, value)?),
            "allow_http" => self.allow_http = truth(name, value)?,
            "replicated" => self.replicated = Some(truth(name, value)?),
            "account" => self.account = Some(value.to_owned()),
            "timeout_ms" => self.timeout = timeout(value)?,
            _ if is_secret(name) => {
                return Err(format!("{name} does not belong into the URL: set it in the environment"));
            }
            _ => return Err(format!("the parameter {name:?} is not known: there are {PARAMETERS}")),
        }
        Ok(())
    }
}

/// Reads the address of a server, from the URL or from an environment variable, whose name is told in errors.
pub(crate) fn endpoint(name: &str, value: &str) -> Result<Url, String> {
    let example = "an example is https://s3.example.org";
    let url = Url::parse(value).map_err(|error| format!("{name}: {error}; {example}"))?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    match url.scheme() {
        "http" | "https" if is_bare && url.has_host() => Ok(url),
        "http" | "https" => Err(format!("{name}: only a scheme, a host, a port and a path; {example}")),
        _ => Err(format!("{name}: neither http:// nor https://; {example}")),
    }
}

fn truth(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("{name} is neither true nor false")),
    }
}

fn timeout(value: &str) -> Result<Duration, String> {
    let allowed = TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX;
    let milliseconds = value.parse().ok().filter(|milliseconds| allowed.contains(milliseconds));
    let wrong = || format!("timeout_ms is a number from {TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX}");
    milliseconds.map(Duration::from_millis).ok_or_else(wrong)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "secret", "token", "password", "sas"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ObjectUrl {
        ObjectUrl::parse(text).unwrap().unwrap()
    }

    fn refused(text: &str) -> String {
        ObjectUrl::parse(text).unwrap().unwrap_err().to_string()
    }

    #[test]
    fn all_parameters_are_read() {
        let url = parsed(
            "s3://bucket/a/b%20c?endpoint=http%3A%2F%2F127.0.0.1%3A8333&region=eu-central-1&path_style=true\
             &replicated=true&allow_http=true&timeout_ms=2500",
        );
        assert_eq!((url.provider, url.bucket.as_str()), (Provider::S3, "bucket"));
        assert_eq!(url.prefix.as_ref(), "a/b c");
        assert_eq!(url.endpoint.as_ref().map(Url::as_str), Some("http://127.0.0.1:8333/"));
        assert_eq!(url.region.as_deref(), Some("eu-central-1"));
        assert_eq!((url.path_style, url.replicated, url.allow_http), (Some(true), Some(true), true));
        assert_eq!(url.timeout, Duration::from_millis(2500));
        assert_eq!(url.to_string(), "s3://bucket/a/b c");
        assert_eq!(parsed("s3://b?endpoint=https://h:1/").endpoint.unwrap().as_str(), "https://h:1/");
    }

    #[test]
    fn providers_are_known_by_their_scheme() {
        assert_eq!(parsed("gs://bucket").provider, Provider::Google);
        assert_eq!(parsed("az://container/x").provider, Provider::Azure);
        assert_eq!(parsed("azure://container/x/").to_string(), "az://container/x");
        assert!(ObjectUrl::parse("postgres://host/db").is_none());
        assert!(ObjectUrl::parse("/var/lib/store").is_none());
    }

    #[test]
    fn a_wrong_url_is_told_what_would_be_right() {
        assert!(refused("s3:///prefix").contains("the bucket is missing"));
        assert!(refused("s3://bucket:9000/x").contains("?endpoint="));
        assert!(refused("s3://bucket/x?regoin=eu").contains("there are endpoint, region"));
        assert!(refused("s3://bucket/x?path_style=maybe").contains("neither true nor false"));
        assert!(refused("s3://bucket/x?timeout_ms=0").contains("from 100 to 600000"));
        assert!(refused("s3://bucket/x?endpoint=ftp://h").contains("neither http:// nor https://"));
        assert!(refused("s3://bucket/a//b").contains("the prefix"));
        assert!(refused("s3://b--use1-az4--x-s3/x").contains("directory bucket"));
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for text in [
            "s3://AKID:topsecret@bucket/x",
            "s3://bucket/x?secret_access_key=topsecret",
            "az://container/x?sas_token=topsecret",
            "s3://bucket/x?endpoint=https://user:topsecret@host",
        ] {
            let error = refused(text);
            assert!(!error.contains("topsecret"), "{error}");
        }
        assert!(refused("s3://AKID:topsecret@bucket/x").contains("AWS_ACCESS_KEY_ID"));
    }
}
