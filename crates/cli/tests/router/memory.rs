//! Memory through the socket: shapes, texts, and what is left after SIGKILL.

use serde_json::{Value, json};

use crate::client::{Client, message, serve};

#[test]
fn what_was_replied_to_survives_sigkill_byte_for_byte() {
    let mut server = serve(&[]);
    let mut client = Client::of(&server);
    let value = r#"{ "n":1e400,"m":[12345678901234567890, -0],"s":"\ud800" }"#;
    client
        .write(message("command", "Memory.Set", &format!(r#"{{"key":"/a/b","value":{value}}}"#), "1") + "\n");
    assert_eq!(client.next()["data"], json!({"success": true, "message": "Set /a/b"}));
    client.reply("command", "Memory.Set", &json!({"key": "/a/c", "value": null}));
    client.reply("command", "Memory.Set", &json!({"key": "/gone", "value": 1}));
    let deleted = client.reply("command", "Memory.Delete", &json!({"key": "/gone"}));
    assert_eq!(deleted, json!({"success": true, "message": "Deleted /gone"}));
    server.kill_and_restart();
    let mut client = Client::of(&server);
    client.write(message("query", "Memory.Get", r#"{"key":"/a/b"}"#, "2") + "\n");
    let line = client.line().expect("an answer");
    assert!(line.contains(&format!("\"data\":{value},")), "{line}");
    assert_eq!(client.reply("query", "Memory.Get", &json!({"key": "/gone"})), Value::Null);
    assert_eq!(client.reply("query", "Memory.List", &json!({"prefix": "/a/c"})), json!({"/a/c": null}));
    let deleted = client.reply("command", "Memory.Delete", &json!({"key": "/never"}));
    assert_eq!(deleted, json!({"success": true, "message": "Deleted /never"}));
}

#[test]
fn messages_sent_without_waiting_see_what_those_before_them_left() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    for n in 0..200 {
        client.send("command", "Memory.Set", &json!({"key": "/n", "value": n}));
        client.send("query", "Memory.Get", &json!({"key": "/n"}));
    }
    client.send("command", "Memory.Delete", &json!({"key": "/n"}));
    client.send("query", "Memory.Get", &json!({"key": "/n"}));
    for n in 0..200 {
        assert_eq!(client.next()["data"]["message"], "Set /n");
        assert_eq!(client.next()["data"], n);
    }
    assert_eq!(client.next()["data"]["message"], "Deleted /n");
    assert_eq!(client.next()["data"], Value::Null);
}

#[test]
fn paths_and_values_that_are_refused_say_why() {
    let server = serve(&["--memory-keys-max", "1"]);
    let mut client = Client::of(&server);
    for (kind, ty) in [("query", "Memory.Get"), ("command", "Memory.Set"), ("command", "Memory.Delete")] {
        let refused = client.refused(kind, ty, &json!({"key": "a", "value": 1}));
        assert_eq!(refused, (422, "Invalid path: 'a'. Paths MUST be absolute (start with /).".to_owned()));
    }
    let (code, text) = client.refused("command", "Memory.Set", &json!({"key": "/vault/a", "value": "plain"}));
    assert!(code == 422 && text.starts_with("E_VAULT_REQUIRES_PWENC"), "{text}");
    client.reply("command", "Memory.Set", &json!({"key": "/vault/a", "value": "pwenc:v1:abc"}));
    let full = client.refused("command", "Memory.Set", &json!({"key": "/b", "value": 1}));
    assert_eq!(full, (503, "Memory is full: it holds 1 paths, delete some".to_owned()));
    let large = client.refused(
        "command",
        "Memory.Set",
        &json!({"key": "/vault/a", "value": format!("pwenc:v1:{}", "x".repeat(12_288))}),
    );
    assert_eq!(large.0, 413);
    let (code, text) = client.refused("command", "Memory.Set", &json!({"key": "/a"}));
    assert_eq!(
        (code, text.as_str()),
        (422, "Schema validation failed: data: \"value\" is a required property")
    );
    client.still_works();
}

#[test]
fn a_list_of_any_length_comes_in_lines_that_fit() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let value = "x".repeat(3000);
    for n in 0..20 {
        client.reply("command", "Memory.Set", &json!({"key": format!("/k/{n:02}"), "value": value}));
    }
    let (mut paths, mut after, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let page = client.reply("query", "Memory.List", &json!({"prefix": "/k/", "after": after}));
        let mut page = page.as_object().expect("an object").clone();
        after = page.remove("next").unwrap_or_default();
        paths.extend(page.into_iter().map(|(path, _)| path));
        pages += 1;
        if after.is_null() {
            break;
        }
    }
    assert_eq!(paths, (0..20).map(|n| format!("/k/{n:02}")).collect::<Vec<_>>());
    assert!(pages > 4, "{pages} pages");
}
