//! `millrace openapi`: prints the document that `GET /openapi.json` returns, without a server.

use clap::Command;

use crate::failure::Failure;
use crate::output::Output;

pub(super) fn command() -> Command {
    Command::new("openapi").about("Print the OpenAPI 3.1 document of the HTTP interface, as JSON")
}

pub(super) fn run() -> Result<(), Failure> {
    let mut out = Output::new();
    out.line(&format!("{:#}", millrace_server::openapi()))?;
    out.flush()
}
