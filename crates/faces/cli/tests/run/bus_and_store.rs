//! `millrace.bus` and `millrace.store` for modules, beside a server and a store.

use serde_json::{Value, json};

use crate::program::ask;
use crate::server::Server;
use crate::stage::Stage;

const BUS: &str = "millrace.bus";
const STORE: &str = "millrace.store";

#[test]
fn a_module_publishes_with_confirmation_and_receives() {
    let server = Server::start();
    let url = server.ws_url();
    let on_server = |stage: &Stage| stage.run(&["--allow", "bus", "--url", &url]).value();
    let event = json!({ "topic": "orders", "payload": "{\"n\":1}", "key": "k", "headers": [{ "name": "h", "value": "v" }] });
    let published = on_server(&Stage::with_program(&[ask(BUS, "publish", vec![event])]));
    assert_eq!(
        (&published["ok"], &published["partition"], &published["offset"]),
        (&json!(true), &json!(0), &json!(1))
    );

    let receive = || ask(BUS, "receive", vec![json!({ "topic": "orders", "group": "g", "wait_ms": 10000 })]);
    let received = on_server(&Stage::with_program(&[receive()]));
    assert_eq!((&received["found"], &received["payload"]), (&json!(true), &json!("{\"n\":1}")));
    assert_eq!((&received["id"], &received["key"]), (&published["id"], &json!("k")));
    // The event was not acknowledged: the next run gets it again, and acknowledges it.
    let ack = ask(BUS, "ack", vec![json!({ "topic": "orders", "group": "g", "partition": 0, "offset": 1 })]);
    let acked = on_server(&Stage::with_program(&[receive(), ack]));
    assert_eq!(acked, json!({ "ok": true, "code": 0, "message": "" }));
    let nothing = ask(BUS, "receive", vec![json!({ "topic": "orders", "group": "g", "wait_ms": 0 })]);
    assert_eq!(on_server(&Stage::with_program(&[nothing]))["found"], json!(false));
}

#[test]
fn refusals_are_answers_for_the_module() {
    let server = Server::start();
    let url = server.ws_url();
    let answer = |op, arg: Value| {
        Stage::with_program(&[ask(BUS, op, vec![arg])]).run(&["--allow", "bus", "--url", &url]).value()
    };
    let bad_topic = answer("publish", json!({ "topic": "a..b", "payload": "1" }));
    assert_eq!((&bad_topic["ok"], &bad_topic["code"]), (&json!(false), &json!(1)));
    let bad_payload = answer("publish", json!({ "topic": "t", "payload": "{" }));
    assert_eq!((&bad_payload["ok"], &bad_payload["code"]), (&json!(false), &json!(1)));
    let emit = answer("emit", json!({ "topic": "t", "payload": "1" }));
    assert_eq!((&emit["ok"], &emit["code"]), (&json!(false), &json!(5)));
    let ack = answer("ack", json!({ "topic": "t", "group": "g", "partition": 0, "offset": 9 }));
    assert_eq!((&ack["ok"], &ack["code"]), (&json!(false), &json!(1)));
}

#[test]
fn a_server_that_is_not_there_is_exit_code_three() {
    let stage = Stage::with_program(&[ask(BUS, "publish", vec![json!({ "topic": "t", "payload": "1" })])]);
    stage.run(&["--allow", "bus", "--url", "ws://127.0.0.1:1/"]).refused(3, &["cannot reach"]);
}

#[test]
fn a_module_keeps_values_in_the_store() {
    let stage = Stage::with_program(&[
        ask(STORE, "ensure", vec![json!({ "key": "count", "value": "{\"n\":1}" })]),
        ask(STORE, "commit", vec![]),
    ]);
    let committed = stage.run(&["--allow", "store", "--store", "sqlite:///state.db"]).value();
    assert_eq!((&committed["ok"], &committed["changed"]), (&json!(true), &json!(true)), "{committed}");

    let read = Stage::with_program(&[ask(STORE, "get", vec![json!("count")])]);
    let store = format!("sqlite:///{}", stage.path("state.db").display());
    let found = read.run(&["--allow", "store", "--store", &store]).value();
    assert_eq!(found, json!({ "ok": true, "found": true, "value": "{\"n\":1}", "code": 0, "message": "" }));
    // Without a commit nothing is kept.
    let dropped = Stage::with_program(&[
        ask(STORE, "ensure", vec![json!({ "key": "other", "value": "1" })]),
        ask(STORE, "get", vec![json!("other")]),
    ]);
    assert_eq!(dropped.run(&["--allow", "store", "--store", &store]).value()["found"], json!(false));
}

#[test]
fn a_value_that_is_no_json_is_an_answer() {
    let stage = Stage::with_program(&[ask(STORE, "ensure", vec![json!({ "key": "k", "value": "{" })])]);
    let answer = stage.run(&["--allow", "store", "--store", "sqlite:///state.db"]).value();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(1)));
}
