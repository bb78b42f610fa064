//! A body that the parser accepts fits its schema, and a body that it refuses does not.

use millrace_wire::http::{PublishBody, Replay, Seek, TopicBody, parse_topic_patch};
use millrace_wire::schema::TopicPatchBody;
use schemars::{JsonSchema, schema_for};
use serde_json::Value;

fn fits<T: JsonSchema>(body: &str) -> bool {
    let body: Value = serde_json::from_str(body).expect("JSON");
    jsonschema::draft202012::is_valid(schema_for!(T).as_value(), &body)
}

#[track_caller]
fn agree<T: JsonSchema, U, E>(read: impl Fn(&str) -> Result<U, E>, good: &[&str], bad: &[&str]) {
    for body in good {
        assert!(read(body).is_ok() && fits::<T>(body), "{body} should be fine");
    }
    for body in bad {
        assert!(read(body).is_err() && !fits::<T>(body), "{body} should be refused");
    }
}

#[test]
fn publishing() {
    agree::<PublishBody, _, _>(
        PublishBody::parse,
        &[
            r#"{"payload":null}"#,
            r#"{"payload":1,"key":"k","headers":{"a":"b"},"id":"i","priority":-3,"delay_ms":0,"new":1}"#,
            r#"[{"payload":1},{"payload":2,"id":"x"}]"#,
        ],
        &[
            "{}",
            r#"{"payload":1,"key":5}"#,
            r#"{"payload":1,"headers":{"a":1}}"#,
            r#"{"payload":1,"id":""}"#,
            r#"{"payload":1,"id":"é"}"#,
            r#"{"payload":1,"priority":1.5}"#,
            r#"{"payload":1,"priority":2147483648}"#,
            r#"{"payload":1,"delay_ms":1,"deliver_at":1}"#,
            r#"{"payload":1,"delay_ms":-1}"#,
            r#"[{"key":"k"}]"#,
            r#"[1]"#,
            "5",
        ],
    );
}

#[test]
fn seeking_and_replaying() {
    agree::<Seek, _, _>(
        Seek::parse,
        &[
            r#"{"from":{"kind":"earliest"}}"#,
            r#"{"from":{"kind":"offset","value":0},"partition":4294967295}"#,
        ],
        &[
            "{}",
            r#"{"from":"earliest"}"#,
            r#"{"from":{}}"#,
            r#"{"from":{"kind":"middle"}}"#,
            r#"{"from":{"kind":"timestamp"}}"#,
            r#"{"from":{"kind":"offset","value":9007199254740992}}"#,
            r#"{"from":{"kind":"earliest"},"partition":4294967296}"#,
        ],
    );
    agree::<Replay, _, _>(
        Replay::parse,
        &["{}", r#"{"partition":0,"offset":0,"limit":10000}"#],
        &[r#"{"limit":0}"#, r#"{"limit":10001}"#, r#"{"offset":"1"}"#],
    );
}

#[test]
fn topics() {
    let good = [
        r#"{"topic":"a.b:c-d_e"}"#,
        r#"{"topic":"a","partitions":1,"retentionMs":1,"retentionBytes":1,"maxAttempts":1,"ackTimeoutMs":1,
            "dedupeWindowMs":0,"durability":"os","compact":true,"publishACL":[],"subscribeACL":["a","!b"]}"#,
    ];
    let bad = [
        "{}",
        r#"{"topic":""}"#,
        r#"{"topic":"a..b"}"#,
        r#"{"topic":"a b"}"#,
        r#"{"topic":"a","partitions":0}"#,
        r#"{"topic":"a","partitions":100000000}"#,
        r#"{"topic":"a","retentionMs":0}"#,
        r#"{"topic":"a","durability":"disk"}"#,
        r#"{"topic":"a","compact":1}"#,
        r#"{"topic":"a","publishACL":"a"}"#,
    ];
    agree::<TopicBody, _, _>(TopicBody::parse, &good, &bad);
    agree::<TopicPatchBody, _, _>(
        parse_topic_patch,
        &[
            "{}",
            r#"{"partitions":null,"retentionMs":null,"durability":null,"compact":null,"publishACL":null}"#,
        ],
        &[r#"{"retentionMs":0}"#, r#"{"durability":1}"#, r#"{"compact":"yes"}"#],
    );
}
