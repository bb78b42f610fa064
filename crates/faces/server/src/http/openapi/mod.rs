//! `GET /openapi.json`: the HTTP interface as an OpenAPI 3.1 document, and `GET /asyncapi.json` beside it.
//!
//! The document is generated from the tables the server runs on: bodies from the wire crate's types, error responses
//! from the table of codes, security from the table of scopes. Facts that no type holds (summaries, parameters,
//! statuses) are in `table.rs`, one entry per operation; a test compares that table with `routes.rs`.

mod letters;
mod operation;
mod parts;
mod server_table;
mod table;
mod work;

use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::access::Scope;
use crate::http::json as json_answer;

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

/// The description of the WebSocket, written by hand; the wire crate's tests compare it with the frames.
const ASYNCAPI: &str = include_str!("../../../../../../docs/asyncapi.json");

pub(crate) async fn asyncapi() -> Response {
    json_answer(StatusCode::OK, ASYNCAPI)
}

pub(crate) async fn openapi() -> Response {
    json_answer(StatusCode::OK, DOCUMENT.clone())
}

/// Returns the whole document, which depends on nothing but this version of the code.
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let mut paths = Map::new();
    let tables = [table::OPERATIONS, letters::OPERATIONS, work::OPERATIONS, server_table::OPERATIONS];
    for operation in tables.into_iter().flatten() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.write(&mut generator);
    }
    let responses = parts::refusals(&mut generator);
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Millrace",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A durable event bus: acked means it is on disk. In what a client sends, an optional field that \
                is null counts as absent (except in PATCH, where it resets), and unknown fields are ignored. The WebSocket \
                is described at /asyncapi.json.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that answered."}],
        "tags": table::TAGS.iter().map(|(name, about)| json!({"name": name, "description": about})).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "responses": responses,
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": scheme_description(),
            }},
        },
    })
}

fn scheme_description() -> String {
    let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    format!(
        "A token from the server's configuration. An operation lists the scopes it needs ({}); admin includes the others. A \
         server without tokens asks nobody for one.",
        scopes.join(", ")
    )
}

#[cfg(test)]
mod tests;
