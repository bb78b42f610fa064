//! Eight publishers of different kinds. A publisher ends when its connection breaks; the next round starts it again.

use serde_json::{Value, json};
use tungstenite::{Message, connect};

use super::dice::Dice;
use super::{FRAGILE, ORDERS, Run};

pub const PUBLISHERS: usize = 8;
/// Sometimes longer than a round, so that some delayed events outlive a kill.
pub const DELAY_MS_MAX: u64 = 300;

pub fn publish(run: &Run, who: usize) {
    let Ok((mut socket, _)) = connect(&run.ws) else { return };
    let mut dice = run.dice(who as u64);
    let mut again = run.ledger().unanswered.get(&who).cloned();
    run.ledger().resent += u64::from(again.is_some());
    for n in 0.. {
        let frame = again.take().unwrap_or_else(|| compose(&mut dice, run.round, who, n));
        if brings_ids(who) {
            run.ledger().unanswered.insert(who, frame.clone());
        }
        if socket.send(Message::text(frame.to_string())).is_err() {
            return;
        }
        let Ok(Message::Text(text)) = socket.read() else { return };
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        run.ledger().published(&frame, &answer);
        run.ledger().unanswered.remove(&who);
    }
}

/// Returns whether the publisher sets event ids. Only such a publisher can send unanswered events again after a
/// restart; the others cannot know whether they were stored.
fn brings_ids(who: usize) -> bool {
    who >= 6
}

/// Returns a frame. Every payload is unique and says what must become of it: `poison` is never acked, `batch` is stored
/// whole or not at all.
fn compose(dice: &mut Dice, round: u64, who: usize, n: u64) -> Value {
    let name = format!("{round}-{who}-{n}");
    match who {
        0 => {
            let kind = if dice.one_in(4) { "poison" } else { "fragile" };
            json!({"type": "PUBLISH", "topic": FRAGILE, "payload": format!("{kind}/{name}")})
        }
        1 | 2 => {
            let key = format!("k{}", dice.below(20));
            json!({"type": "PUBLISH", "topic": ORDERS, "key": key, "payload": format!("plain/{name}")})
        }
        3 => {
            let delay = dice.below(DELAY_MS_MAX);
            json!({"type": "PUBLISH", "topic": ORDERS, "delay_ms": delay, "payload": format!("delayed/{name}")})
        }
        4 | 5 => batch(dice, &name, false),
        6 => json!({"type": "PUBLISH", "topic": ORDERS, "id": name, "payload": format!("id/{name}")}),
        _ => batch(dice, &name, true),
    }
}

fn batch(dice: &mut Dice, name: &str, ids: bool) -> Value {
    let size = 2 + dice.below(5);
    let event = |n: u64| {
        let mut event = json!({"payload": format!("batch/{name}/{size}/{n}")});
        if ids {
            event["id"] = json!(format!("{name}/{n}"));
        }
        event
    };
    json!({"type": "PUBLISH_BATCH", "topic": ORDERS, "events": (0..size).map(event).collect::<Vec<_>>()})
}
