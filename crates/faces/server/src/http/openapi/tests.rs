//! Checks the document against the routes, against the rules of OpenAPI 3.1 and for consistency.

use std::collections::BTreeSet;

use serde_json::Value;

use super::document;

const METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// The routes as `routes.rs` writes them: `.route("/path", get(a).post(b))`.
fn routes() -> BTreeSet<(String, String)> {
    let source = include_str!("../../routes.rs");
    let mut found = BTreeSet::new();
    for rest in source.split(".route(\"").skip(1) {
        let (path, rest) = rest.split_once('"').unwrap();
        let handlers = rest.split_once("))").unwrap().0;
        for method in METHODS.iter().filter(|method| {
            handlers.contains(&format!(" {method}(")) || handlers.contains(&format!(".{method}("))
        }) {
            found.insert((path.to_owned(), (*method).to_owned()));
        }
    }
    found
}

fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().unwrap().iter().map(move |(method, op)| (path.as_str(), method.as_str(), op))
        })
        .collect()
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let document = document();
    let described: BTreeSet<(String, String)> = operations(&document)
        .into_iter()
        .map(|(path, method, _)| (path.to_owned(), method.to_owned()))
        .collect();
    let routes = routes();
    assert!(routes.len() > 15, "{routes:?}");
    assert_eq!(described, routes);
}

/// Each rule is one of the specification's.
#[test]
fn the_document_keeps_the_rules_of_openapi() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    let tags: Vec<&Value> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let here = format!("{method} {path}");
        assert!(path.starts_with('/') && METHODS.contains(&method), "{here}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{here}: id twice");
        assert!(operation["tags"].as_array().unwrap().iter().all(|tag| tags.contains(&tag)), "{here}");
        let mut names = BTreeSet::new();
        for param in operation["parameters"].as_array().unwrap() {
            let (name, place) = (param["name"].as_str().unwrap(), param["in"].as_str().unwrap());
            assert!(names.insert((place, name)), "{here}: {name} twice");
            assert!(["path", "query", "header"].contains(&place), "{here}");
            assert_eq!(param["required"], place == "path", "{here}: {name}");
            assert_eq!(place == "path", path.contains(&format!("{{{name}}}")), "{here}: {name}");
            assert!(param["schema"].is_object(), "{here}: {name}");
        }
        for piece in path.split('{').skip(1) {
            let name = piece.split_once('}').unwrap().0;
            assert!(names.contains(&("path", name)), "{here}: {name} is not described");
        }
        if let Some(body) = operation.get("requestBody") {
            assert!(["post", "patch"].contains(&method), "{here}");
            check_content(&body["content"], &here);
        }
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with(['1', '2', '3'])), "{here}");
        for (status, response) in responses {
            let code: u16 = status.parse().unwrap();
            assert!((100..600).contains(&code), "{here}: {status}");
            let response = resolve(&document, response);
            assert!(response["description"].as_str().is_some_and(|text| text.len() > 5), "{here}: {status}");
            if code >= 400 {
                assert!(response["content"]["application/problem+json"].is_object(), "{here}: {status}");
            }
            if let Some(content) = response.get("content") {
                check_content(content, &here);
            }
        }
        for requirement in operation["security"].as_array().unwrap() {
            for scheme in requirement.as_object().unwrap().keys() {
                assert!(document["components"]["securitySchemes"][scheme].is_object(), "{here}: {scheme}");
            }
        }
    }
}

fn check_content(content: &Value, here: &str) {
    let content = content.as_object().unwrap();
    assert!(!content.is_empty(), "{here}");
    for (kind, media) in content {
        assert!(kind.contains('/') && media["schema"].is_object(), "{here}: {kind}");
    }
}

fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref").and_then(Value::as_str) {
        None => value,
        Some(reference) => document
            .pointer(reference.strip_prefix('#').unwrap())
            .unwrap_or_else(|| panic!("{reference} leads nowhere")),
    }
}

/// A pattern that is no regular expression, or a keyword of the wrong kind, would make a schema useless.
#[test]
fn every_schema_is_a_schema_and_every_reference_leads_somewhere() {
    let document = document();
    let mut schemas = 0;
    each_schema(&document, &mut |schema| {
        schemas += 1;
        jsonschema::draft202012::meta::validate(schema).unwrap_or_else(|error| panic!("{error}: {schema}"));
    });
    assert!(schemas > 60, "{schemas}");
    each_reference(&document, &mut |reference| {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
    });
}

fn each_schema(value: &Value, check: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value) {
                    ("schema", value) => check(value),
                    ("schemas", Value::Object(schemas)) => schemas.values().for_each(&mut *check),
                    _ => each_schema(value, check),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|value| each_schema(value, check)),
        _ => {}
    }
}

fn each_reference(value: &Value, check: &mut impl FnMut(&str)) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                check(reference);
            }
            members.values().for_each(|value| each_reference(value, check));
        }
        Value::Array(elements) => elements.iter().for_each(|value| each_reference(value, check)),
        _ => {}
    }
}
