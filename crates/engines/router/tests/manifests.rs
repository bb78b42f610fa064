//! Manifests of child processes: what is accepted, and the errors for everything else.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use millrace_model::{JsonText, OsKind};
use millrace_router::{BRANCHES_MAX, BUS_TOPICS_MAX, Manifest, ManifestError, SUBSCRIBES_MAX};
use serde_json::{Value, json};

fn refused(manifest: &Value) -> ManifestError {
    Manifest::parse(&manifest.to_string()).map(|manifest| manifest.to_json()).unwrap_err()
}

fn with_branch(branch: &Value) -> Value {
    json!({ "name": "A", "inbound": [branch] })
}

#[test]
fn a_manifest_says_everything_or_little() {
    let manifest = Manifest::parse(
        r#"{"name":"greeter-1.x","description":"Says hello","version":7,
            "inbound":[{"kind":"query","type":"Greeter.Hello","description":"Greets","extra":1,
                        "data":{"type":"object","required":["name"]},"output":{"type":"string"}}],
            "outbound":[{"kind":"event","type":"Greeter.Greeted"}],
            "subscribes":["User.Created","User.Created","User.Deleted"],
            "bus":[{"topic":"orders"},{"topic":"bills","group":"g","from":"earliest"}]}"#,
    )
    .unwrap();
    assert_eq!((&*manifest.name, manifest.description.as_str()), ("greeter-1.x", "Says hello"));
    let branch = &manifest.inbound[0];
    assert_eq!((branch.kind, branch.ty.as_str()), (OsKind::Query, "Greeter.Hello"));
    assert!(branch.data.check(&JsonText::parse("{}").unwrap()).is_err());
    assert_eq!(
        manifest.subscribes.iter().map(|ty| ty.as_str()).collect::<Vec<_>>(),
        ["User.Created", "User.Deleted"]
    );
    assert_eq!(manifest.outbound.as_ref().unwrap()[0].ty.as_str(), "Greeter.Greeted");
    assert_eq!((manifest.bus[0].group.as_str(), manifest.bus[0].from_earliest), ("os.greeter-1.x", false));
    assert_eq!((manifest.bus[1].group.as_str(), manifest.bus[1].from_earliest), ("g", true));
    let shown = manifest.to_json();
    assert_eq!(Manifest::parse(&shown.to_string()).unwrap().to_json(), shown);

    let little = Manifest::parse(r#"{"name":"A","inbound":[],"outbound":null,"bus":null}"#).unwrap();
    assert!(little.outbound.is_none() && little.subscribes.is_empty() && little.bus.is_empty());
}

#[test]
fn kinds_and_types_that_are_not_one_literal_are_infinite() {
    for ty in [
        json!("*"),
        json!("Memory.*"),
        json!("^A\\.B$"),
        json!({ "type": "string" }),
        json!(["A.B", "A.C"]),
        json!(true),
    ] {
        let error = refused(&with_branch(&json!({ "kind": "query", "type": ty })));
        assert!(
            matches!(&error, ManifestError::Infinite { member, .. } if member == "inbound[0].type"),
            "{error:?}"
        );
        let error = refused(&with_branch(&json!({ "kind": ty, "type": "A.B" })));
        assert!(
            matches!(&error, ManifestError::Infinite { member, .. } if member == "inbound[0].kind"),
            "{error:?}"
        );
    }
    let error = refused(&json!({ "name": "A", "inbound": [], "subscribes": ["A.B", "User.*"] }));
    assert_eq!(
        error.to_string(),
        "subscribes[1] is \"User.*\": it must be one literal such as \"Memory.Get\", because what a capability handles \
         has to be finite; write one branch for each"
    );
}

#[test]
fn a_refusal_names_the_member_what_was_found_and_what_is_right() {
    for (manifest, words) in [
        (json!([]), "the manifest is an array: one JSON object is expected"),
        (json!({}), "name is missing: it must be 1 to 100 letters"),
        (json!({ "name": "a b", "inbound": [] }), "name is \"a b\": it must be 1 to 100 letters"),
        (json!({ "name": "x".repeat(101), "inbound": [] }), "name is \"xxxx"),
        (json!({ "name": 5, "inbound": [] }), "name is 5: it must be"),
        (json!({ "name": "A" }), "inbound is missing: it must be an array"),
        (json!({ "name": "A", "inbound": {} }), "inbound is an object: it must be an array"),
        (json!({ "name": "A", "inbound": [1] }), "inbound[0] is 1: it must be an object"),
        (json!({ "name": "A", "inbound": [], "description": 1 }), "description is 1: it must be a string"),
        (with_branch(&json!({ "type": "A.B" })), "inbound[0].kind is missing"),
        (with_branch(&json!({ "kind": "query" })), "inbound[0].type is missing"),
        (
            with_branch(&json!({ "kind": "Query", "type": "A.B" })),
            "inbound[0].kind is \"Query\": it must be \"command\"",
        ),
        (
            with_branch(&json!({ "kind": "query", "type": "string" })),
            "inbound[0].type is \"string\": it must be a domain",
        ),
        (with_branch(&json!({ "kind": "query", "type": 1 })), "inbound[0].type is 1: it must be a string"),
        (
            with_branch(&json!({ "kind": "query", "type": "A.B", "data": { "type": "strnig" } })),
            "inbound[0].data is no JSON Schema: ",
        ),
        (
            json!({ "name": "A", "inbound": [], "bus": [{ "topic": "a b" }] }),
            "bus[0].topic is \"a b\": it must be the name of a topic",
        ),
        (
            json!({ "name": "A..B", "inbound": [], "bus": [{ "topic": "a" }] }),
            "bus[0].group is \"os.A..B\": it must be the name of a group",
        ),
        (
            json!({ "name": "A", "inbound": [], "bus": [{ "topic": "a", "from": "start" }] }),
            "bus[0].from is \"start\": it must be \"earliest\" or \"latest\"",
        ),
    ] {
        let error = refused(&manifest).to_string();
        assert!(error.contains(words), "{manifest}: {error}");
    }
    assert!(matches!(Manifest::parse("{").unwrap_err(), ManifestError::Json(_)));
    assert!(matches!(Manifest::parse(&"[".repeat(100_000)).unwrap_err(), ManifestError::Json(_)));
    assert!(matches!(Manifest::parse(&" ".repeat(2 << 20)).unwrap_err(), ManifestError::TooLong { .. }));
}

#[test]
fn every_list_has_an_end() {
    let branch = json!({ "kind": "query", "type": "A.B" });
    for (member, entry, max) in [
        ("inbound", branch.clone(), BRANCHES_MAX),
        ("outbound", branch, BRANCHES_MAX),
        ("subscribes", json!("A.B"), SUBSCRIBES_MAX),
        ("bus", json!({ "topic": "t" }), BUS_TOPICS_MAX),
    ] {
        let mut manifest = json!({ "name": "A", "inbound": [] });
        manifest[member] = vec![entry.clone(); max].into();
        assert!(Manifest::parse(&manifest.to_string()).is_ok(), "{member}");
        manifest[member] = vec![entry; max + 1].into();
        let error = refused(&manifest);
        assert_eq!(error, ManifestError::TooMany { member: member.into(), count: max + 1, max });
    }
}

#[test]
fn branches_are_described_in_both_shapes() {
    let manifest = Manifest::parse(
        r#"{"name":"A","description":"All of it",
            "inbound":[{"kind":"query","type":"A.B","description":"Does b","data":{"type":"object"}},
                       {"kind":"command","type":"A.C","description":"c","data":{"description":"own"}},
                       {"kind":"command","type":"A.D"}]}"#,
    )
    .unwrap();
    assert_eq!(
        manifest.inbound[0].describe(&manifest),
        json!({ "name": "A.B", "kind": "query", "capability": "A", "description": "Does b",
                "input": { "type": "object", "description": "Does b" }, "output": {} })
    );
    assert_eq!(
        manifest.inbound[1].describe_in_schemas(&manifest),
        json!({ "kind": "command", "capability": "A", "description": "c", "input": { "description": "own" }, "output": {} })
    );
    assert_eq!(manifest.inbound[2].describe(&manifest)["description"], "All of it");
}
