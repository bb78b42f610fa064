//! Memory through the socket: shapes, texts, and the contents after SIGKILL.

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
    let only = "E_VAULT_REQUIRES_PWENC: /vault/ paths accept only ciphertext (pwenc:v1:...).";
    assert_eq!((code, text.as_str()), (422, only));
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

#[test]
fn a_list_goes_by_segments_of_paths() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    for path in ["/a", "/a-b", "/a/b", "/a/c/d", "/ab", "/b"] {
        client.reply("command", "Memory.Set", &json!({"key": path, "value": path}));
    }
    let mut paths = |data: Value| -> Vec<String> {
        let list = client.reply("query", "Memory.List", &data);
        list.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(paths(json!({"prefix": "/a"})), ["/a", "/a/b", "/a/c/d"], "itself and what is below it");
    assert_eq!(paths(json!({"prefix": "/a/"})), ["/a/b", "/a/c/d"]);
    assert_eq!(paths(json!({"prefix": "/a", "after": "/a"})), ["/a/b", "/a/c/d"]);
    assert_eq!(paths(json!({"prefix": "/a", "after": "/a/b"})), ["/a/c/d"]);
    for all in [json!({}), json!({"prefix": ""}), json!({"prefix": "/"}), json!({"prefix": null})] {
        assert_eq!(paths(all).len(), 6);
    }
    assert_eq!(
        client.refused("query", "Memory.List", &json!({"prefix": "a"})),
        (422, "Invalid path: 'a'. Paths MUST be absolute (start with /).".to_owned())
    );
}

#[test]
fn a_path_with_an_empty_segment_or_dots_is_refused_and_what_is_right_is_said() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let why = |path: &str| {
        let rule = "Between two / must be a name, and neither . nor .., such as in /settings/colour.";
        (422, format!("Invalid path: '{path}'. {rule}"))
    };
    for path in ["/a//b", "/a/..", "/a/./b", "/..", "//", "/a//"] {
        let refused = client.refused("query", "Memory.List", &json!({"prefix": path}));
        assert_eq!(refused, why(path));
        let refused = client.refused("command", "Memory.Set", &json!({"key": path, "value": 1}));
        assert_eq!(refused, why(path));
        // An older server without this rule may have stored such a path.
        assert_eq!(client.reply("query", "Memory.Get", &json!({"key": path})), Value::Null);
        client.reply("command", "Memory.Delete", &json!({"key": path}));
    }
    for path in ["/", "/a/"] {
        assert_eq!(client.refused("command", "Memory.Set", &json!({"key": path, "value": 1})), why(path));
        assert_eq!(client.reply("query", "Memory.List", &json!({"prefix": path})), json!({}));
    }
    client.reply("command", "Memory.Set", &json!({"key": "/a.b/...", "value": 1}));
}

/// Members that occur twice, in the envelope and in data.
#[test]
fn of_a_repeated_member_the_last_one_counts() {
    let server = serve(&[]);
    let mut client = Client::of(&server);
    let data = r#"{"key":"/no","value":1,"key":"/yes","value":1.0}"#;
    client.write(message("command", "Memory.Set", data, "1") + "\n");
    assert_eq!(client.next()["data"]["message"], "Set /yes");
    client.write(message("query", "Memory.Get", r#"{"key":"/no","key":"/yes"}"#, "2") + "\n");
    assert!(client.line().expect("an answer").contains("\"data\":1.0,"));
    let data = r#"{"topic":"no","topic":"yes","payload":1,"payload":2}"#;
    client.write(message("command", "Bus.Publish", data, "3") + "\n");
    assert_eq!(client.next()["data"]["topic"], "yes");
    let data = r#"{"name":"No.One","name":"Memory.Get"}"#;
    client.write(message("query", "Syscall.Describe", data, "4") + "\n");
    assert_eq!(client.next()["data"]["name"], "Memory.Get");
}

#[test]
fn a_change_is_an_event() {
    let scripts = crate::children::Scripts::new();
    let log = scripts.path("log");
    let body = format!(
        "if message['type'] == 'A.Do':\n    answer('reply', None)\n    continue\n\
         with open({log:?}, 'a') as out: print(json.dumps([message['data'], message['metadata']['causation']]), file=out)"
    );
    let config = scripts.write("A", &json!({"subscribes": ["Memory.Changed"]}), &body);
    let server = crate::children::serve(&config, &[]);
    let mut client = Client::of(&server);
    let set = client.send("command", "Memory.Set", &json!({"key": "/a", "value": 1}));
    let deleted = client.send("command", "Memory.Delete", &json!({"key": "/a"}));
    for _ in 0..2 {
        assert_eq!(client.next()["kind"], "reply");
    }
    client.reply("command", "Memory.Delete", &json!({"key": "/a"}));
    client.reply("query", "A.Do", &json!(1));
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    crate::server::eventually("both are heard of", || lines().len() >= 2);
    let change =
        |what: &str, cause: &str| json!([{"key": "/a", "change": what, "namespace": "default"}, cause]);
    assert_eq!(lines(), [change("set", &set), change("deleted", &deleted)]);
}
