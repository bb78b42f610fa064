//! The admin: creates the topics, looks around, seeks groups, lets topics grow and deletes them.

use std::sync::Arc;

use millrace_bus::{From, Request};
use millrace_model::{Namespace, Offset, Partition, Timestamp, TopicPatch};

use super::{Desk, Note};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::payload::forbidding;
use crate::plan::Plan;

const CREATE: Note = Note(0);
const LOOK: Note = Note(1);

#[derive(Debug)]
pub(crate) struct Admin {
    dice: Dice,
    plan: Plan,
    grown: u32,
    /// Separate dice, so that changes of schemas do not shift the other draws.
    schema_dice: Dice,
}

impl Admin {
    pub(crate) fn new(dice: Dice, schema_dice: Dice, plan: Plan) -> Admin {
        Admin { dice, plan, grown: 0, schema_dice }
    }

    pub(crate) fn wake(&mut self, desk: &mut Desk, note: Note) {
        if note == CREATE {
            // Only once: a topic that a crash takes away is created again on first use, with the defaults.
            for topic in &self.plan.topics {
                desk.call(Request::CreateTopic {
                    topic: topic.key.clone(),
                    settings: topic.config.clone().into(),
                    only_new: false,
                });
            }
        } else if desk.up && !desk.calm {
            self.look(desk);
            if self.schema_dice.chance(self.plan.schema_changes) {
                self.set_schema(desk);
            }
        }
        let pause_ms = self.dice.between(50, 300);
        if !desk.calm {
            desk.wake_in(pause_ms, LOOK);
        }
    }

    fn look(&mut self, desk: &mut Desk) {
        let Some(topic) = self.dice.pick(&self.plan.topics).map(|topic| topic.key.clone()) else { return };
        if self.dice.chance(self.plan.rates.seek) {
            desk.count(Fault::Seek);
            return self.seek(desk);
        }
        if self.dice.chance(self.plan.rates.grow) && self.grown < 4 {
            desk.count(Fault::Grow);
            self.grown += 1;
            let partitions = Some(self.dice.between(2, 6) as u32);
            desk.call(Request::PatchTopic {
                topic,
                patch: TopicPatch { partitions, ..TopicPatch::default() }.into(),
            });
            return;
        }
        if self.dice.chance(self.plan.rates.delete_topic) {
            desk.count(Fault::DeleteTopic);
            let topic = topic.dead_letters().filter(|_| self.dice.chance(200)).unwrap_or(topic);
            desk.call(Request::DeleteTopic { topic });
            return;
        }
        let request = match self.dice.below(5) {
            0 | 1 => Request::Offsets { topic },
            2 => Request::DescribeTopic { topic },
            3 => Request::ListTopics {
                namespace: Namespace::default(),
                after: None,
                max: 1 + self.dice.below(3) as usize,
                dead_letters_only: self.dice.chance(200),
            },
            _ => Request::Stats,
        };
        desk.call(request);
    }

    /// Sets a schema that forbids events of the past, or one that forbids an event that is about to come, or removes
    /// the schema.
    fn set_schema(&mut self, desk: &mut Desk) {
        let Some(topic) = self.schema_dice.pick(&self.plan.topics).map(|topic| topic.key.clone()) else {
            return;
        };
        let (small, soon) =
            (self.schema_dice.between(3, 40), desk.newest_event() + self.schema_dice.between(1, 3));
        let factor = if self.schema_dice.chance(300) { small } else { soon };
        let schema = self.schema_dice.chance(600).then(|| Arc::new(forbidding(factor)));
        let force_schema = self.schema_dice.chance(200);
        let patch = TopicPatch { schema: Some(schema), force_schema, ..TopicPatch::default() };
        desk.call(Request::PatchTopic { topic, patch: patch.into() });
    }

    fn seek(&mut self, desk: &mut Desk) {
        let Some(seat) = self.dice.pick(&self.plan.groups).map(|group| group.seat.clone()) else { return };
        let from = match self.dice.below(4) {
            0 => From::Earliest,
            1 => From::Latest,
            2 => From::Offset(Offset(self.dice.below(60))),
            _ => From::Timestamp(Timestamp(desk.wall.0.saturating_sub(self.dice.below(5000)))),
        };
        let partition = self.dice.chance(400).then(|| Partition(self.dice.below(4) as u32));
        desk.call(Request::SeekGroup { topic: seat.topic, group: seat.group, partition, from });
    }
}
