//! An entry of the table of operations, and how it is written to the document.

use axum::http::Method;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::access::{Need, needs_of};
use crate::http::openapi::parts;

/// Makes the schema of a body, or a reference to it.
pub(super) type Maker = fn(&mut SchemaGenerator) -> Schema;

pub(super) struct ApiOperation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: &'static [Param],
    pub(super) headers: &'static [Param],
    pub(super) body: &'static [Content],
    pub(super) answers: &'static [ApiAnswer],
    /// Statuses of refusals besides those of the gate (`access/gate.rs`), which follow from the scopes that the
    /// operation needs.
    pub(super) refusals: &'static [u16],
}

#[derive(Clone, Copy)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) schema: Maker,
}

#[derive(Clone, Copy)]
pub(super) struct Content {
    pub(super) kind: &'static str,
    pub(super) schema: Maker,
}

pub(super) struct ApiAnswer {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) contents: &'static [Content],
    pub(super) headers: &'static [Param],
}

impl ApiOperation {
    pub(super) fn write(&self, generator: &mut SchemaGenerator) -> Value {
        let need = self.need();
        let mut written = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "parameters": self.parameters(generator),
            "responses": self.responses(need, generator),
            "security": security(need),
        });
        if !self.body.is_empty() {
            written["requestBody"] = json!({"required": true, "content": contents(self.body, generator)});
        }
        written
    }

    fn need(&self) -> Need {
        let method = Method::from_bytes(self.method.to_uppercase().as_bytes()).unwrap_or_default();
        needs_of(&method, Some(self.path))
    }

    /// Names in the path become parameters by themselves.
    fn parameters(&self, generator: &mut SchemaGenerator) -> Vec<Value> {
        let named = |name: &str| self.path.contains(&format!("{{{name}}}"));
        let in_path =
            parts::PATH_PARAMS.iter().filter(|param| named(param.name)).map(|param| (param, "path"));
        let query = self.query.iter().map(|param| (param, "query"));
        let headers = self.headers.iter().map(|param| (param, "header"));
        let write = |(param, place): (&Param, &str)| {
            json!({
                "name": param.name,
                "in": place,
                "required": place == "path",
                "description": param.about,
                "schema": (param.schema)(generator),
            })
        };
        in_path.chain(query).chain(headers).map(write).collect()
    }

    fn responses(&self, need: Need, generator: &mut SchemaGenerator) -> Map<String, Value> {
        let mut responses = Map::new();
        for answer in self.answers {
            let mut written = json!({"description": answer.about});
            if !answer.contents.is_empty() {
                written["content"] = contents(answer.contents, generator);
            }
            if !answer.headers.is_empty() {
                written["headers"] = headers(answer.headers, generator);
            }
            responses.insert(answer.status.to_string(), written);
        }
        let gate: &[u16] = match need {
            // The origin is checked for every request.
            Need::Nothing => &[403],
            Need::Socket => &[400, 401, 403, 429],
            Need::Token => &[401, 403, 429, 503],
            Need::Scopes(_) | Need::AnyOf(_) => &[400, 401, 403, 429, 503],
        };
        for status in gate.iter().chain(self.refusals) {
            let reference = format!("#/components/responses/{}", parts::refusal_name(*status));
            responses.insert(status.to_string(), json!({"$ref": reference}));
        }
        responses
    }
}

fn contents(contents: &[Content], generator: &mut SchemaGenerator) -> Value {
    let each = contents
        .iter()
        .map(|content| (content.kind.to_owned(), json!({"schema": (content.schema)(generator)})));
    Value::Object(each.collect())
}

pub(super) fn headers(headers: &[Param], generator: &mut SchemaGenerator) -> Value {
    let each = headers.iter().map(|header| {
        let written = json!({"description": header.about, "schema": (header.schema)(generator)});
        (header.name.to_owned(), written)
    });
    Value::Object(each.collect())
}

fn security(need: Need) -> Value {
    match need {
        Need::Nothing => json!([]),
        // No token needed: a browser authenticates by its first frame instead.
        Need::Socket => json!([{}, {"token": []}]),
        Need::Token => json!([{"token": []}]),
        Need::Scopes(scopes) => {
            let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
            json!([{"token": scopes}])
        }
        Need::AnyOf(scopes) => scopes.iter().map(|scope| json!({"token": [scope.as_str()]})).collect(),
    }
}
