//! The causation that child processes state (RFC 0032, section 9.2): only true statements are passed on.

use serde_json::{Value, json};

use crate::children::{Scripts, serve};
use crate::client::{Client, fault, metric};
use crate::server::{Server, eventually};

/// A child that collects `Ear.Heard` events and returns them when asked.
const EAR: &str = "if message['kind'] == 'event':\n    heard = globals().setdefault('HEARD', [])\n    heard.append(message)\n\
                   else:\n    answer('reply', globals().get('HEARD', []))";

/// A child that emits an event caused by `data['cause']`, before or after its reply.
const MOUTH: &str = "data = message['data']\n\
    cause = data.get('cause', message['metadata']['id'])\n\
    event = {'kind': 'event', 'type': 'Ear.Heard', 'data': data.get('say'), 'metadata': {'causation': cause, 'correlation': 'made-up'}}\n\
    if not data.get('late'): say(event)\n\
    answer('reply', 'said')\n\
    if data.get('late'): say(event)";

fn two(scripts: &Scripts, flags: &[&str]) -> Server {
    let ear = scripts.write("Ear", &json!({"subscribes": ["Ear.Heard"]}), EAR);
    serve(&(ear + &scripts.write("Mouth", &json!({}), MOUTH)), flags)
}

fn heard(client: &mut Client) -> Vec<Value> {
    client.reply("query", "Ear.Do", &json!({})).as_array().expect("a list").clone()
}

#[test]
fn an_event_of_a_child_goes_on_only_if_its_cause_is_true() {
    let scripts = Scripts::new();
    let server = two(&scripts, &[]);
    let mut client = Client::of(&server);
    let id = client.send("query", "Mouth.Do", &json!({"say": 1}));
    assert_eq!(client.next()["data"], "said");
    eventually("it is heard", || heard(&mut client).len() == 1);
    assert_eq!(heard(&mut client)[0]["metadata"]["causation"], id);
    // True causes, although late: emitted after the reply, and caused by an earlier request.
    client.send("query", "Mouth.Do", &json!({"say": 2, "late": true}));
    assert_eq!(client.next()["data"], "said");
    client.send("query", "Mouth.Do", &json!({"say": 3, "cause": id}));
    assert_eq!(client.next()["data"], "said");
    eventually("both are heard", || heard(&mut client).len() == 3);
    assert!(metric(&server, "os_actor_faults_total") < 0.5);
    // False causes: a message that does not exist, and a message to another capability.
    let elsewhere = client.send("query", "Ear.Do", &json!({}));
    client.next();
    for lie in ["never", elsewhere.as_str()] {
        let (code, text) = client.refused("query", "Mouth.Do", &json!({"say": 4, "cause": lie}));
        assert_eq!(code, 500);
        let said = format!(
            "Capability 'Mouth' emitted event Ear.Heard with metadata.causation {lie}, which it was not"
        );
        assert!(text.starts_with(&said), "{text}");
    }
    assert_eq!(client.reply("query", "Mouth.Do", &json!({"say": 5})), "said", "it goes on");
    eventually("the next is heard", || heard(&mut client).len() == 4);
    assert!(heard(&mut client).iter().all(|event| event["data"] != 4), "and the lies never were");
    assert!((metric(&server, "os_actor_faults_total") - 2.0).abs() < 0.5);
    assert!(server.log().contains("Sys.ActorFault"));
}

#[test]
fn an_event_belongs_to_the_undertaking_of_its_cause() {
    let scripts = Scripts::new();
    let server = two(&scripts, &[]);
    let mut client = Client::of(&server);
    let line = json!({"kind": "query", "type": "Mouth.Do", "data": {"say": 1}, "metadata":
        {"id": "a", "timestamp": 1, "correlation": "undertaking"}});
    client.write(format!("{line}\n"));
    assert_eq!(client.next()["data"], "said");
    eventually("it is heard", || heard(&mut client).len() == 1);
    assert_eq!(
        heard(&mut client)[0]["metadata"]["correlation"],
        "undertaking",
        "whatever the child made of it"
    );
}

#[test]
fn what_is_too_long_ago_is_no_cause_any_more() {
    let scripts = Scripts::new();
    let server = two(&scripts, &["--os-lineage-max", "4"]);
    let mut client = Client::of(&server);
    let id = client.send("query", "Mouth.Do", &json!({"say": 1}));
    client.next();
    // Each of these is two messages: the request, and the event that the child emits.
    for _ in 0..2 {
        client.reply("query", "Mouth.Do", &json!({"say": 2}));
    }
    let answer = client.ask("query", "Mouth.Do", &json!({"say": 3, "cause": id}));
    assert_eq!(fault(&answer).0, 500, "{answer}");
}
