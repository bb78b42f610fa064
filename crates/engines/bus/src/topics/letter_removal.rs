//! Removing single dead letters, when an operator has dealt with them.

use millrace_model::{Now, Offset, Op, Partition, TopicKey};

use crate::bus::Bus;
use crate::interface::reply::{BusError, ReplyTo};
use crate::lifecycle::pending::PendingEffect;

/// Letters of one request.
const REMOVED_MAX: usize = 1000;

impl Bus {
    /// Removes letters at these offsets, in ascending order. Groups that read the topic of letters and have one of them
    /// in memory may still be sent it; nobody who reads the log finds it again.
    pub(crate) fn remove_letters(
        &mut self,
        now: Now,
        to: ReplyTo,
        topic: TopicKey,
        partition: Partition,
        offsets: Vec<Offset>,
    ) -> Result<(), BusError> {
        if !topic.is_dead_letter() {
            return Err(BusError::NoLetters(topic));
        }
        if offsets.len() > REMOVED_MAX {
            return Err(BusError::BatchTooLong { events: offsets.len(), max: REMOVED_MAX });
        }
        let id = self.topics.known(&topic)?;
        let Some(state) = self.topics.get(id) else { return Err(BusError::UnknownTopic(topic)) };
        let partitions = state.logs.len() as u32;
        let Some(log) = state.logs.get(partition.0 as usize) else {
            return Err(BusError::UnknownPartition { topic, partition, partitions });
        };
        let stored = |offset: &Offset| (log.start..log.next).contains(offset);
        let mut offsets: Vec<Offset> = offsets.into_iter().filter(stored).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let Some(compacted_to) = offsets.last().map(|last| last.next()) else {
            return Err(BusError::EmptyBatch);
        };
        let durability = self.limits.durability;
        let ops = vec![Op::Remove { stream: topic.stream(partition), offsets, compacted_to }];
        self.commit(now, durability, ops, PendingEffect::LettersRemove { to, topic, partition });
        Ok(())
    }
}
