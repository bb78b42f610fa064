//! Consumers that leave events unanswered or refuse them, and an observer that watches the commits.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, connect};

use super::dice::Dice;
use super::{Run, TOPICS, group_of};

pub fn subscribe(topic: &str) -> Value {
    json!({"type": "SUBSCRIBE", "topic": topic, "group": group_of(topic), "ack_mode": "individual",
           "from": {"kind": "earliest"}, "max_inflight": 128})
}

/// Consumes until the connection breaks.
pub fn consume(run: &Run, topic: &'static str, who: u64) {
    let Ok((mut socket, _)) = connect(&run.ws) else { return };
    let mut dice = run.dice(who);
    if socket.send(Message::text(subscribe(topic).to_string())).is_err() {
        return;
    }
    while let Ok(message) = socket.read() {
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).expect("JSON");
        if let Some(answer) = answer(run, topic, &frame, Some(&mut dice))
            && socket.send(Message::text(answer.to_string())).is_err()
        {
            return;
        }
    }
}

/// Returns a consumer's answer to a frame. A consumer with dice leaves some events unanswered, but only at their first
/// delivery, so that kills find events in flight and the commit still advances.
pub fn answer(run: &Run, topic: &'static str, frame: &Value, dice: Option<&mut Dice>) -> Option<Value> {
    let mut ledger = run.ledger();
    if frame["type"] == "OK" {
        if let Some(rid) = frame["rid"].as_str() {
            let (partition, offset) = rid.split_once('/').expect("our own rid");
            ledger.ack_confirmed((
                topic,
                partition.parse().expect("a number"),
                offset.parse().expect("a number"),
            ));
        }
        return None;
    }
    assert_eq!(frame["type"], "MESSAGE", "{frame}");
    let first = ledger.delivered(topic, frame, run.round);
    let (partition, offset) = (&frame["partition"], &frame["offset"]);
    let mut answer =
        json!({"topic": topic, "partition": partition, "group": group_of(topic), "offset": offset});
    if frame["envelope"]["payload"].as_str().is_some_and(|payload| payload.starts_with("poison")) {
        answer["type"] = json!("NACK");
        answer["reason"] = json!("poison");
        return Some(answer);
    }
    if first && dice.is_some_and(|dice| dice.one_in(16)) {
        return None;
    }
    answer["type"] = json!("ACK");
    answer["rid"] = json!(format!("{partition}/{offset}"));
    ledger.ack_sent((topic, partition.as_u64().expect("a number"), offset.as_u64().expect("a number")));
    Some(answer)
}

/// Records every `committed` that a client could have seen.
pub fn watch(run: &Run) {
    loop {
        for topic in TOPICS {
            let Ok(mut response) = ureq::get(format!("{}/topics/{topic}/offsets", run.http)).call() else {
                return;
            };
            let Ok(text) = response.body_mut().read_to_string() else { return };
            let offsets: Value = serde_json::from_str(&text).expect("JSON");
            run.ledger().committed(topic, &offsets);
        }
        thread::sleep(Duration::from_millis(2));
    }
}
