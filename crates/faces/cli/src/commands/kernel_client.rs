//! A client for commands that query the CQRS loop: a connection, the token, and answers as JSON.

use std::path::Path;

use millrace_client::{OsClient, OsClientError, OsOptions};
use serde_json::{Value, json};

use crate::failure::Failure;

pub(super) struct KernelClient(OsClient);

impl KernelClient {
    /// Connects and authenticates with the token, if there is one.
    pub(super) async fn connect(path: &Path, token: &str) -> Result<KernelClient, Failure> {
        let client = OsClient::connect(OsOptions::new(path)).await.map_err(failed)?;
        if !token.is_empty() {
            client.command("Syscall.Authenticate", &json!({ "token": token })).await.map_err(failed)?;
        }
        Ok(KernelClient(client))
    }

    pub(super) async fn query(&self, ty: &str, data: &Value) -> Result<Value, Failure> {
        let reply = self.0.query(ty, data).await.map_err(failed)?;
        serde_json::from_str(reply.as_str()).map_err(|error| Failure::Failed(error.to_string()))
    }

    /// Returns what requests take and answer, by type: for all requests (`*`), or for those of a type or of a
    /// capability.
    pub(super) async fn describe(&self, what: &str) -> Result<Vec<(String, Value)>, Failure> {
        let (mut all, mut after) = (Vec::new(), Value::Null);
        loop {
            let page =
                self.query("Syscall.Describe", &json!({ "capabilities": [what], "after": after })).await?;
            let schemas = page["schemas"].as_object().cloned().unwrap_or_default();
            all.extend(schemas);
            after = page["next"].clone();
            if after.is_null() {
                return Ok(all);
            }
        }
    }
}

fn failed(error: OsClientError) -> Failure {
    match error {
        OsClientError::Unreachable { .. } => Failure::Unreachable(error.to_string()),
        error => Failure::Failed(error.to_string()),
    }
}
