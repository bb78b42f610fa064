//! A dropped topic: how far handlers were in its streams must not be applied to later streams of the same name.

use millrace_model::{KeyRange, Op, Space, TopicKey};

use crate::TxView;

const ROWS_PER_SCAN: usize = 1024;

/// Deletes all lanes and open claims on the topic, so that its handlers begin anew and holders of leases are refused.
/// Scans these two tables of the whole namespace, which hold only open work, no finished events.
pub fn forget_topic<L: TxView>(tx: &mut L, topic: &TopicKey) -> Result<Vec<Op>, L::Error> {
    let mut ops = Vec::new();
    // Keys are `namespace/handler/topic/…` and `namespace/handler/due/topic/…`.
    for (space, place) in [(Space::Lanes, 2), (Space::Claims, 3)] {
        let mut range = KeyRange::prefix(&format!("{}/", topic.namespace()));
        loop {
            let rows = tx.scan(space, &range, ROWS_PER_SCAN)?;
            let last =
                rows.last().filter(|_| rows.len() == ROWS_PER_SCAN).map(|row| format!("{}\0", row.key));
            let mine = rows.into_iter().filter(|row| row.key.split('/').nth(place) == Some(topic.topic()));
            ops.extend(mine.map(|row| Op::Delete { space, key: row.key }));
            match last {
                Some(from) => range.from = from,
                None => break,
            }
        }
    }
    Ok(ops)
}
