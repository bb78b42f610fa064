//! Every frame a client may send.

use millrace_wire::ClientFrame;

/// A frame that is read and written again has the canonical spelling.
#[test]
fn good_frames_are_read_and_written() {
    for (text, canonical) in [
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1}"#, //
            r#"{"type":"PUBLISH","topic":"a","payload":1}"#,
        ),
        (
            r#" { "payload" : null , "rid" : "r\n1" , "topic" : "a" , "type" : "PUBLISH" } "#,
            r#"{"type":"PUBLISH","rid":"r\n1","topic":"a","payload":null}"#,
        ),
        (
            r#"{"type":"PUBLISH","topic":"a:b-c_d.e","key":"","headers":{"x":"y"},"priority":-5,"id":"o 7","delay_ms":10,"rid":7,"payload":{"a":[1e400, 2]}}"#,
            r#"{"type":"PUBLISH","rid":7,"topic":"a:b-c_d.e","delay_ms":10,"key":"","headers":{"x":"y"},"id":"o 7","priority":-5,"payload":{"a":[1e400, 2]}}"#,
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","key":null,"headers":null,"id":null,"priority":null,"delay_ms":null,"deliver_at":9,"rid":null,"payload":"\ud800"}"#,
            r#"{"type":"PUBLISH","topic":"a","deliver_at":9,"payload":"\ud800"}"#,
        ),
        (
            r#"{"t\u0079pe":"PUBLISH","topic":"\u0061","key":"\ud83d\ude00\"","payload":0,"payload":1,"new":{"x":[]}}"#,
            r#"{"type":"PUBLISH","topic":"a","key":"😀\"","payload":1}"#,
        ),
        (
            "{\"type\":\"PUBLISH\",\"topic\":\"a\",\"payload\":[1,\r\n2]}",
            r#"{"type":"PUBLISH","topic":"a","payload":[1,  2]}"#,
        ),
        (
            r#"{"type":"PUBLISH_BATCH","topic":"a","rid":-1,"events":[{"payload":null},{"payload":2,"key":"k","id":"i","headers":{},"priority":1}]}"#,
            r#"{"type":"PUBLISH_BATCH","rid":-1,"topic":"a","events":[{"payload":null},{"key":"k","headers":{},"id":"i","priority":1,"payload":2}]}"#,
        ),
        (
            r#"{"type":"PUBLISH_BATCH","topic":"a","events":[]}"#,
            r#"{"type":"PUBLISH_BATCH","topic":"a","events":[]}"#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","credits":"not a field of this frame"}"#,
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g"}"#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"latest","value":null},"max_inflight":1,"ack_mode":"cumulative","filter":{}}"#,
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"latest"},"max_inflight":1,"ack_mode":"cumulative"}"#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"offset","value":0,"reset":true},"ack_mode":"individual","filter":{"key":"k","header":["n","v"]}}"#,
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"offset","value":0,"reset":true},"ack_mode":"individual","filter":{"key":"k","header":["n","v"]}}"#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"timestamp","value":1723140000000,"reset":false},"filter":{"header":["n",""]}}"#,
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"timestamp","value":1723140000000},"filter":{"header":["n",""]}}"#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","batch_max":64}"#,
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","batch_max":64}"#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"earliest"}}"#,
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"earliest"}}"#,
        ),
        (
            r#"{"type":"UNSUBSCRIBE","topic":"a","group":"g","rid":"x"}"#,
            r#"{"type":"UNSUBSCRIBE","rid":"x","topic":"a","group":"g"}"#,
        ),
        (
            r#"{"type":"ACK","topic":"a","partition":0,"group":"g","offset":9007199254740991}"#,
            r#"{"type":"ACK","topic":"a","partition":0,"group":"g","offset":9007199254740991}"#,
        ),
        (
            r#"{"type":"NACK","topic":"a","partition":3,"group":"g","offset":1,"reason":"tab\t","delay_ms":0}"#,
            r#"{"type":"NACK","topic":"a","partition":3,"group":"g","offset":1,"reason":"tab\t","delay_ms":0}"#,
        ),
        (r#"{"type":"FLOW","credits":0}"#, r#"{"type":"FLOW","credits":0}"#),
        (r#"{"type":"PING"}"#, r#"{"type":"PING"}"#),
        (r#"{"type":"PING","rid":""}"#, r#"{"type":"PING","rid":""}"#),
        (r#"{"type":"AUTH","token":"t"}"#, r#"{"type":"AUTH","token":"t"}"#),
    ] {
        let frame = ClientFrame::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut out = String::new();
        frame.write(&mut out);
        assert_eq!(out, canonical);
        assert_eq!(ClientFrame::parse(&out).unwrap(), frame);
    }
}
