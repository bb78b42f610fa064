//! Compares the AsyncAPI document of the WebSocket with the frames that the code reads and writes.

use std::collections::{BTreeMap, BTreeSet};

use millrace_wire::{ClientFrame, ClientRequest, ErrorCode, ServerFrame};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../../docs/asyncapi.json");

/// Fields that are always written, but that a reader does not require.
const LENIENT: &[(&str, &str)] = &[("ERROR", "message")];

struct Described {
    /// Such as `publishedLater`, where one type of frame has several forms.
    title: String,
    name: String,
    schema: Value,
    examples: Vec<Value>,
}

fn document() -> Value {
    serde_json::from_str(DOCUMENT).expect("JSON")
}

fn messages() -> Vec<Described> {
    let document = document();
    let schemas = document["components"]["schemas"].clone();
    let messages = document["components"]["messages"].as_object().expect("messages").clone();
    let described = messages.into_iter().map(|(title, message)| {
        let mut schema = message["payload"].clone();
        schema["components"]["schemas"] = schemas.clone();
        // A field that is not described is a mistake too.
        schema["unevaluatedProperties"] = false.into();
        let examples = message["examples"].as_array().expect("examples");
        Described {
            title,
            name: message["name"].as_str().expect("a name").to_owned(),
            schema,
            examples: examples.iter().map(|example| example["payload"].clone()).collect(),
        }
    });
    described.collect()
}

/// Returns the form of a frame and its canonical spelling; `None` if neither side can parse it.
fn read(text: &str) -> Option<(String, String)> {
    let mut out = String::new();
    if let Ok(frame) = ClientFrame::parse(text) {
        frame.write(&mut out);
        return Some((frame.request.type_name().to_owned(), out));
    }
    let frame = ServerFrame::parse(text).ok()?;
    frame.write(&mut out);
    let shape = match &frame {
        ServerFrame::Published(published) => match published.place {
            millrace_wire::PublishedPlace::At { .. } => "PUBLISHED",
            millrace_wire::PublishedPlace::Due(_) => "PUBLISHED later",
        },
        ServerFrame::PublishedBatch(_) => "PUBLISHED batch",
        ServerFrame::Ok(ok) if ok.subscribed.is_some() => "OK subscribed",
        ServerFrame::Ok(_) => "OK",
        ServerFrame::Message(_) => "MESSAGE",
        ServerFrame::Messages(_) => "MESSAGES",
        ServerFrame::Pong(_) => "PONG",
        ServerFrame::Error(_) => "ERROR",
    };
    Some((shape.to_owned(), out))
}

#[test]
fn every_type_of_frame_is_described_and_no_other() {
    let described: BTreeSet<String> = messages().into_iter().map(|message| message.name).collect();
    let spoken = ClientRequest::TYPES.iter().chain(ServerFrame::TYPES).map(|name| (*name).to_owned());
    assert_eq!(described, spoken.collect());
    for message in messages() {
        assert_eq!(message.schema["properties"]["type"]["const"], message.name.as_str(), "{}", message.title);
    }
}

#[test]
fn every_example_is_a_frame_that_fits_before_and_after_it_was_read() {
    for Described { title, schema, examples, .. } in messages() {
        let schema = jsonschema::draft202012::new(&schema).expect("a schema");
        assert!(!examples.is_empty(), "{title} has no example");
        for example in examples {
            assert!(schema.is_valid(&example), "{title}: {example}");
            let (_, written) =
                read(&example.to_string()).unwrap_or_else(|| panic!("{title}: {example} cannot be read"));
            let written: Value = serde_json::from_str(&written).expect("JSON");
            assert!(schema.is_valid(&written), "{title}: {written}");
            assert_eq!(written, example, "{title}");
        }
    }
}

/// Leaves out each field of each example once: parsing fails exactly for the fields that are marked as required.
#[test]
fn the_fields_a_frame_needs_are_those_that_are_marked_so() {
    for Described { title, name, schema, examples } in messages() {
        let required: BTreeSet<&str> =
            schema["required"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        let mut left_out = BTreeSet::new();
        for example in &examples {
            let whole = read(&example.to_string()).expect("a frame").0;
            for field in example.as_object().expect("an object").keys() {
                let mut without = example.clone();
                without.as_object_mut().expect("an object").remove(field);
                let missed = read(&without.to_string()).is_none_or(|(shape, _)| shape != whole);
                let lenient = LENIENT.contains(&(name.as_str(), field.as_str()));
                assert_eq!(missed || lenient, required.contains(field.as_str()), "{title}: {field}");
                left_out.insert(field.clone());
            }
        }
        let described: BTreeSet<String> =
            schema["properties"].as_object().expect("properties").keys().cloned().collect();
        assert_eq!(left_out, described, "{title}: the examples do not show every field");
    }
}

#[test]
fn the_codes_are_those_of_the_protocol() {
    let document = document();
    let described: BTreeSet<&str> = document["components"]["schemas"]["code"]["enum"]
        .as_array()
        .expect("codes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(described, ErrorCode::ALL.iter().map(|code| code.as_str()).collect());
}

/// The rules of AsyncAPI 3 for the parts that are used.
#[test]
fn the_document_keeps_the_rules_of_asyncapi() {
    let document = document();
    assert_eq!(document["asyncapi"], "3.0.0");
    assert!(document["info"]["title"].is_string());
    assert_eq!(
        document["info"]["version"],
        env!("CARGO_PKG_VERSION"),
        "the description is of another version"
    );
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 50);
    for reference in references {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
    }
    let channel = &document["channels"]["bus"];
    let carried: BTreeSet<&String> = channel["messages"].as_object().expect("messages").keys().collect();
    let made = document["components"]["messages"].as_object().expect("messages");
    assert_eq!(carried, made.keys().collect());
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, operation) in document["operations"].as_object().expect("operations") {
        assert!(["send", "receive"].contains(&operation["action"].as_str().expect("an action")), "{name}");
        assert_eq!(operation["channel"]["$ref"], "#/channels/bus", "{name}");
        for list in [&operation["messages"], &operation["reply"]["messages"]] {
            for message in list.as_array().into_iter().flatten() {
                let reference = message["$ref"].as_str().expect("a reference");
                let message =
                    reference.strip_prefix("#/channels/bus/messages/").expect("a message of the channel");
                *used.entry(message).or_default() += 1;
            }
        }
    }
    assert_eq!(
        used.keys().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(),
        made.keys().cloned().collect()
    );
    for schema in document["components"]["schemas"].as_object().expect("schemas").values() {
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{schema}");
    }
}

fn collect<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| collect(value, references));
        }
        Value::Array(elements) => elements.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}
