//! `millrace openapi`.

use crate::run::run;

#[test]
fn the_document_is_printed_without_a_server() {
    let document: serde_json::Value = serde_json::from_str(&run(&["openapi"]).ok()).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/topics/{topic}/events"]["post"].is_object());
}
