//! The kinds of object storage, and what is different between them.

use object_store::{ObjectMeta, PutResult, UpdateVersion};

/// Hosts of providers that keep every object on several machines before they answer, by the end of their names.
const REPLICATING_HOSTS: [&str; 7] = [
    "amazonaws.com",
    "amazonaws.com.cn",
    "storage.googleapis.com",
    "blob.core.windows.net",
    "blob.core.chinacloudapi.cn",
    "blob.core.usgovcloudapi.net",
    "r2.cloudflarestorage.com",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Amazon S3 and everything that speaks its protocol.
    S3,
    Google,
    Azure,
}

/// The kinds of requests that need different rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Put,
    Get,
    List,
    Delete,
}

impl Provider {
    pub(crate) fn of_scheme(scheme: &str) -> Option<Provider> {
        match scheme {
            "s3" => Some(Provider::S3),
            "gs" => Some(Provider::Google),
            "az" | "azure" => Some(Provider::Azure),
            _ => None,
        }
    }

    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Provider::S3 => "s3",
            Provider::Google => "gs",
            Provider::Azure => "az",
        }
    }

    /// Returns the right that a request needs, in the provider's words.
    pub(crate) fn right(self, request: RequestKind) -> &'static str {
        match (self, request) {
            (Provider::S3, RequestKind::Put) => "s3:PutObject",
            (Provider::S3, RequestKind::Get) => {
                "s3:GetObject or s3:ListBucket (without the second one, S3 denies a key that is not there)"
            }
            (Provider::S3, RequestKind::List) => "s3:ListBucket",
            (Provider::S3, RequestKind::Delete) => "s3:DeleteObject",
            (Provider::Google, RequestKind::Put) => {
                "storage.objects.create or storage.objects.delete (which replacing needs)"
            }
            (Provider::Google, RequestKind::Get) => "storage.objects.get or storage.objects.list",
            (Provider::Google, RequestKind::List) => "storage.objects.list",
            (Provider::Google, RequestKind::Delete) => "storage.objects.delete",
            (Provider::Azure, RequestKind::Put) => {
                "to write blobs (role Storage Blob Data Contributor, or SAS cw)"
            }
            (Provider::Azure, RequestKind::Get) => {
                "to read blobs (role Storage Blob Data Contributor, or SAS r)"
            }
            (Provider::Azure, RequestKind::List) => {
                "to list blobs (role Storage Blob Data Contributor, or SAS l)"
            }
            (Provider::Azure, RequestKind::Delete) => {
                "to delete blobs (role Storage Blob Data Contributor, or SAS d)"
            }
        }
    }

    /// Returns what identifies the state of an object that was read: Google compares generations, others entity tags.
    pub(crate) fn version_read(self, meta: &ObjectMeta) -> Option<String> {
        self.version(meta.e_tag.clone(), meta.version.clone())
    }

    /// Returns what identifies the state of an object that was written.
    pub(crate) fn version_put(self, put: &PutResult) -> Option<String> {
        self.version(put.e_tag.clone(), put.version.clone())
    }

    fn version(self, tag: Option<String>, generation: Option<String>) -> Option<String> {
        match self {
            Provider::S3 | Provider::Azure => tag,
            Provider::Google => generation,
        }
    }

    /// Returns the condition that an object still has a version.
    pub(crate) fn condition(self, version: String) -> UpdateVersion {
        match self {
            Provider::S3 | Provider::Azure => UpdateVersion { e_tag: Some(version), version: None },
            Provider::Google => UpdateVersion { e_tag: None, version: Some(version) },
        }
    }
}

/// Returns whether a host belongs to a provider that keeps every object on several machines.
pub(crate) fn is_replicating(host: &str) -> bool {
    let before = REPLICATING_HOSTS.iter().find_map(|known| host.strip_suffix(known));
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_that_replicate_are_known_by_their_host() {
        for host in [
            "bucket.s3.eu-central-1.amazonaws.com",
            "storage.googleapis.com",
            "account.blob.core.windows.net",
            "0123.eu.r2.cloudflarestorage.com",
        ] {
            assert!(is_replicating(host), "{host}");
        }
        for host in ["127.0.0.1", "evilamazonaws.com", "amazonaws.com.example.org", "minio.local"] {
            assert!(!is_replicating(host), "{host}");
        }
    }
}
