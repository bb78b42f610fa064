//! Makes the connection to a provider from a URL and the environment. Nothing is sent yet.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::environment::ObjectEnvironment;
use crate::error::ObjectOpenError;
use crate::http::{NotingConnector, deepest};
use crate::provider::Provider;
use crate::store_url::{ObjectUrl, endpoint};

/// A connection, and the host that it goes to.
pub(crate) struct Connection {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) host: String,
}

pub(crate) fn connect(
    url: &ObjectUrl,
    environment: &ObjectEnvironment,
) -> Result<Connection, ObjectOpenError> {
    let connected = match url.provider {
        Provider::S3 => connect_s3(url, environment),
        Provider::Google => connect_google(url, environment),
        Provider::Azure => connect_azure(url, environment),
    };
    connected.map_err(|error| match error {
        ObjectOpenError::Settings(text) => ObjectOpenError::Settings(environment.redact(&text)),
        other => other,
    })
}

fn connect_s3(url: &ObjectUrl, environment: &ObjectEnvironment) -> Result<Connection, ObjectOpenError> {
    let region =
        url.region.as_deref().or(environment.get("AWS_REGION")).or(environment.get("AWS_DEFAULT_REGION"));
    let server = server(url, environment, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "AWS_ALLOW_HTTP")?;
    let region = match (region, &server) {
        (Some(region), _) => region,
        // Other servers than Amazon's mostly take any region.
        (None, Some(_)) => "us-east-1",
        (None, None) => {
            return Err(ObjectOpenError::Settings(
                "the region is missing: set AWS_REGION or ?region=".into(),
            ));
        }
    };
    let server = match server {
        Some(server) => server,
        None => {
            endpoint("region", &format!("https://s3.{region}.amazonaws.com")).map_err(ObjectOpenError::Url)?
        }
    };
    // A certificate for *.s3.amazonaws.com does not cover a bucket with dots; servers of one's own mostly have no names
    // for buckets.
    let is_amazon = server.host_str().is_some_and(|host| host.ends_with(".amazonaws.com"));
    let is_path_style = url.path_style.unwrap_or(!is_amazon || url.bucket.contains('.'));
    let server = if is_path_style { server } else { host_of_bucket(&server, &url.bucket)? };
    let settings = environment.variables().filter(|(name, _)| name.starts_with("AWS_"));
    let builder = settings.fold(AmazonS3Builder::new(), |builder, (name, value)| {
        match name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            Ok(key) if is_taken_from_environment(key) => builder.with_config(key, value),
            _ => builder,
        }
    });
    let store = builder
        .with_bucket_name(&url.bucket)
        // SeaweedFS (4.48) stores an empty object if a connection ends between the headers and the body of a request,
        // unless the request says what the body is. An empty record in the place of a record would stop the journal.
        .with_checksum_algorithm(Checksum::SHA256)
        .with_region(region)
        .with_endpoint(server.as_str().trim_end_matches('/'))
        .with_virtual_hosted_style_request(!is_path_style)
        .with_retry(no_retries())
        .with_client_options(client_options(&server))
        .with_http_connector(NotingConnector::new()?)
        .build();
    Ok(Connection { store: built(store)?, host: host(&server) })
}

/// Returns whether a variable is a matter of the environment. The rest is decided by the URL or by this crate: that
/// conditions are used, above all.
fn is_taken_from_environment(key: AmazonS3ConfigKey) -> bool {
    use AmazonS3ConfigKey as Key;
    !matches!(
        key,
        Key::Bucket
            | Key::Region
            | Key::DefaultRegion
            | Key::Endpoint
            | Key::S3Endpoint
            | Key::VirtualHostedStyleRequest
            | Key::S3Express
            | Key::ConditionalPut
            | Key::CopyIfNotExists
            | Key::Client(_)
    )
}

fn connect_google(url: &ObjectUrl, environment: &ObjectEnvironment) -> Result<Connection, ObjectOpenError> {
    let server = server(url, environment, &["GOOGLE_BASE_URL"], "GOOGLE_ALLOW_HTTP")?;
    let server = match server {
        Some(server) => server,
        None => endpoint("endpoint", "https://storage.googleapis.com").map_err(ObjectOpenError::Url)?,
    };
    let settings = environment.variables().filter(|(name, _)| name.starts_with("GOOGLE_"));
    let builder = settings.fold(GoogleCloudStorageBuilder::new(), |builder, (name, value)| {
        match name.to_ascii_lowercase().parse::<GoogleConfigKey>() {
            Ok(GoogleConfigKey::Bucket | GoogleConfigKey::BaseUrl | GoogleConfigKey::Client(_)) | Err(_) => {
                builder
            }
            Ok(key) => builder.with_config(key, value),
        }
    });
    let store = builder
        .with_bucket_name(&url.bucket)
        .with_config(GoogleConfigKey::BaseUrl, server.as_str().trim_end_matches('/'))
        .with_retry(no_retries())
        .with_client_options(client_options(&server))
        .with_http_connector(NotingConnector::new()?)
        .build();
    Ok(Connection { store: built(store)?, host: host(&server) })
}

fn connect_azure(url: &ObjectUrl, environment: &ObjectEnvironment) -> Result<Connection, ObjectOpenError> {
    let account = url.account.as_deref();
    let account = account.or(environment.get("AZURE_STORAGE_ACCOUNT_NAME"));
    let account = account.or(environment.get("AZURE_STORAGE_ACCOUNT"));
    let missing = "the storage account is missing: set AZURE_STORAGE_ACCOUNT_NAME or ?account=";
    let account = account.ok_or_else(|| ObjectOpenError::Settings(missing.into()))?;
    let server = server(url, environment, &["AZURE_STORAGE_ENDPOINT"], "AZURE_ALLOW_HTTP")?;
    let server = match server {
        Some(server) => server,
        None => endpoint("account", &format!("https://{account}.blob.core.windows.net"))
            .map_err(ObjectOpenError::Url)?,
    };
    let settings = environment.variables().filter(|(name, _)| name.starts_with("AZURE_"));
    let builder = settings.fold(MicrosoftAzureBuilder::new(), |builder, (name, value)| {
        match name.to_ascii_lowercase().parse::<AzureConfigKey>() {
            Ok(
                AzureConfigKey::ContainerName
                | AzureConfigKey::AccountName
                | AzureConfigKey::Endpoint
                | AzureConfigKey::UseEmulator
                | AzureConfigKey::Client(_),
            )
            | Err(_) => builder,
            Ok(key) => builder.with_config(key, value),
        }
    });
    let store = builder
        .with_account(account)
        .with_container_name(&url.bucket)
        .with_endpoint(server.as_str().trim_end_matches('/').to_owned())
        .with_retry(no_retries())
        .with_client_options(client_options(&server))
        .with_http_connector(NotingConnector::new()?)
        .build();
    Ok(Connection { store: built(store)?, host: host(&server) })
}

/// Returns the server that the URL names, or else the environment.
fn server(
    url: &ObjectUrl,
    environment: &ObjectEnvironment,
    variables: &[&str],
    http_variable: &str,
) -> Result<Option<Url>, ObjectOpenError> {
    let from_variable = |name: &&str| environment.get(name).map(|value| endpoint(name, value));
    let server = match &url.endpoint {
        Some(server) => Some(server.clone()),
        None => variables.iter().find_map(from_variable).transpose().map_err(ObjectOpenError::Settings)?,
    };
    let is_http_allowed = url.allow_http || environment.is_true(http_variable);
    if !is_http_allowed && server.as_ref().is_some_and(|server| server.scheme() == "http") {
        let text = "the endpoint is http://, where everybody on the way can read and change what is stored: use \
                    https://, or add ?allow_http=true";
        return Err(ObjectOpenError::Url(text.into()));
    }
    Ok(server)
}

fn host_of_bucket(server: &Url, bucket: &str) -> Result<Url, ObjectOpenError> {
    let mut with_bucket = server.clone();
    let name = format!("{bucket}.{}", server.host_str().unwrap_or_default());
    match with_bucket.set_host(Some(&name)) {
        Ok(()) => Ok(with_bucket),
        Err(error) => Err(ObjectOpenError::Url(format!("{name} is no host ({error}): add ?path_style=true"))),
    }
}

fn host(server: &Url) -> String {
    server.host_str().unwrap_or_default().to_owned()
}

/// Requests for credentials take what the provider's own rules say; these options are for the store itself.
fn client_options(server: &Url) -> ClientOptions {
    ClientOptions::new().with_allow_http(server.scheme() == "http")
}

fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}

fn built<S: ObjectStore>(store: object_store::Result<S>) -> Result<Arc<dyn ObjectStore>, ObjectOpenError> {
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(ObjectOpenError::Settings(deepest(&error))),
    }
}
