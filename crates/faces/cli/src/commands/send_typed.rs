//! `millrace send TYPE [DATA] [--kind]`: builds a message from its parts.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches};
use millrace_client::JsonText;
use millrace_model::OsType;

use crate::commands::kernel_client::KernelClient;
use crate::commands::text;
use crate::failure::Failure;

pub(super) fn args() -> [Arg; 2] {
    [
        Arg::new("data").value_name("DATA").help("With TYPE: its data as JSON [default: {}]"),
        Arg::new("kind")
            .long("kind")
            .value_name("KIND")
            .value_parser(PossibleValuesParser::new(["command", "query", "event"]))
            .help("With TYPE: what it is [default: what the server handles it as]"),
    ]
}

/// A message given by its parts; used if the first argument is a type.
pub(super) struct Typed {
    ty: OsType,
    data: JsonText,
    kind: Option<String>,
}

impl Typed {
    pub(super) fn of(matches: &ArgMatches) -> Result<Option<Typed>, Failure> {
        let (data, kind) = (text(matches, "data"), text(matches, "kind"));
        let ty = text(matches, "message").and_then(|first| OsType::new(first).ok());
        let Some(ty) = ty else {
            return match (data, kind) {
                (None, None) => Ok(None),
                _ => Err(Failure::Usage(
                    "DATA and --kind go with a TYPE such as Memory.Get, not with a whole message".into(),
                )),
            };
        };
        let data = JsonText::parse(data.unwrap_or("{}").trim())
            .map_err(|error| Failure::Usage(format!("DATA is no JSON: {error}")))?;
        Ok(Some(Typed { ty, data, kind: kind.map(str::to_owned) }))
    }

    /// Returns the message as a line. Without `--kind` the server is asked for the kind.
    pub(super) async fn message(self, path: &Path, token: &str) -> Result<String, Failure> {
        let ty = &self.ty;
        let kind = match self.kind {
            Some(kind) => kind,
            None => {
                let described = KernelClient::connect(path, token).await?.describe(ty.as_str()).await?;
                let kind = described.iter().find_map(|(_, described)| described["kind"].as_str());
                kind.map(str::to_owned).ok_or_else(|| {
                    Failure::Failed(format!("nobody handles {ty}: to send it as an event give --kind event"))
                })?
            }
        };
        Ok(format!(r#"{{"kind":"{kind}","type":"{ty}","data":{}}}"#, self.data.as_str()))
    }
}
