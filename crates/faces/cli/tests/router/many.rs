//! Many clients at once.

use std::collections::BTreeSet;
use std::thread;

use serde_json::json;

use crate::client::{Client, ping, serve};

#[test]
fn many_clients_each_hear_every_answer_of_their_own_in_order() {
    let server = serve(&[]);
    thread::scope(|scope| {
        for client in 0..16 {
            let server = &server;
            scope.spawn(move || {
                let mut connection = Client::of(server);
                for n in 0..500 {
                    connection.write(ping(&format!("{client}-{n}"), &n.to_string()) + "\n");
                }
                for n in 0..500 {
                    let answer = connection.next();
                    assert_eq!(answer["metadata"]["causation"], format!("{client}-{n}"));
                    assert_eq!(answer["data"]["payload"], n);
                }
            });
        }
    });
    crate::client::nothing_is_left(&server);
}

#[test]
fn a_slow_capability_holds_up_nobody_else() {
    let server = serve(&[]);
    let (mut slow, mut quick) = (Client::of(&server), Client::of(&server));
    for n in 0..500 {
        slow.send("command", "Memory.Set", &json!({"key": format!("/{n}"), "value": n}));
    }
    quick.still_works();
    let answered: BTreeSet<String> =
        (0..500).map(|_| slow.next()["metadata"]["causation"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(answered.len(), 500);
}
