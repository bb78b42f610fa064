//! Clients: send requests under few ids, events, forged answers, timers.

use millrace_model::{JsonText, Now, OsId, OsKind, OsMessage, OsMetadata, OsType};
use millrace_router::ConnId;
use serde_json::{Value, json};

use super::actor::MANNERS;
use super::record::Record;
use crate::dice::Dice;

/// So few that ids are used again and clash.
const IDS: u64 = 12;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) conn: ConnId,
    number: usize,
}

impl Client {
    pub(crate) fn new(number: usize) -> Client {
        Client { conn: ConnId(0), number }
    }

    pub(crate) fn says(&mut self, dice: &mut Dice, record: &mut Record, now: Now) -> OsMessage {
        match dice.below(20) {
            0 => made(OsKind::Event, "Fact.Emitted", "fact", &json!(1), None, now),
            1 => {
                let id = format!("id-{}", dice.below(IDS));
                made(OsKind::Reply, "X0.Ask", "forged", &json!({ "use": 0 }), Some(&id), now)
            }
            2 => made(OsKind::Event, "Sys.Anything", "fact", &json!(1), None, now),
            3..5 => self.timer(dice, record, now),
            5 => match record.some_timer(dice) {
                Some(timer) => {
                    let id = format!("cancel-{}", record.next_use());
                    let use_number = record.asked(self.conn, &id);
                    let data = json!({ "timerId": timer, "use": use_number });
                    record.cancel_asked(&timer, &id);
                    made(OsKind::Command, "Timer.Cancel", &id, &data, None, now)
                }
                None => made(OsKind::Event, "Fact.Emitted", "fact", &json!(1), None, now),
            },
            6 => {
                let id = format!("nobody-{}", record.next_use());
                record.asked(self.conn, &id);
                made(OsKind::Query, "No.Body", &id, &json!(null), None, now)
            }
            _ => {
                let to = dice.below(MANNERS.len() as u64) as usize;
                let (kind, action) =
                    if dice.chance(500) { (OsKind::Query, "Ask") } else { (OsKind::Command, "Do") };
                let id = format!("id-{}", dice.below(IDS));
                let data = json!({ "use": record.asked(self.conn, &id) });
                made(kind, &format!("X{to}.{action}"), &id, &data, None, now)
            }
        }
    }

    fn timer(&mut self, dice: &mut Dice, record: &mut Record, now: Now) -> OsMessage {
        let id = format!("timer-{}-{}", self.number, record.next_use());
        record.asked(self.conn, &id);
        let delay_ms = dice.below(3000);
        record.timer_asked(&id, now, delay_ms);
        let to = if dice.chance(500) { "X0.Do" } else { "X1.Do" };
        let (kind, ty) = if dice.chance(700) { ("command", to) } else { ("event", "Fact.Emitted") };
        let data = json!({
            "delayMs": delay_ms,
            "message": { "kind": kind, "type": ty, "data": { "timer": id } },
        });
        made(OsKind::Command, "Timer.Set", &id, &data, None, now)
    }
}

fn made(kind: OsKind, ty: &str, id: &str, data: &Value, cause: Option<&str>, now: Now) -> OsMessage {
    let fine = "the words of this file are legal";
    OsMessage {
        kind,
        ty: OsType::new(ty).expect(fine),
        data: JsonText::from_stored(data.to_string().into()),
        metadata: OsMetadata {
            id: OsId::new(id).expect(fine),
            timestamp: now.wall,
            correlation: None,
            causation: cause.and_then(|cause| OsId::new(cause).ok()),
            other: None,
        },
    }
}
