//! The state as symbolic operations (crate `resolve`) see it.

use std::convert::Infallible;

use bytes::Bytes;
use millrace_model::{KeyRange, Offset, Page, Partition, ReadLimit, Row, Space, Stream, TopicKey};

use super::MemoryState;
use crate::port::StreamRun;
use millrace_resolve::{StreamView, TxView};

pub(super) struct MemoryTxView<'a> {
    pub(super) state: &'a MemoryState,
    /// The runs that the commit under way has appended so far.
    pub(super) runs: &'a [StreamRun],
}

impl TxView for MemoryTxView<'_> {
    type Error = Infallible;

    fn get(&mut self, space: Space, key: &str) -> Result<Option<Bytes>, Infallible> {
        Ok(self.state.tables.get(space, key).cloned())
    }

    fn scan(&mut self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, Infallible> {
        Ok(self.state.tables.rows(space, range, rows_max))
    }

    fn read(&mut self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, Infallible> {
        Ok(self.state.logs.get(stream).map_or_else(Page::default, |log| log.read(from, limit)))
    }

    fn streams(&mut self, topic: &TopicKey) -> Result<Vec<StreamView>, Infallible> {
        let logs = self.state.logs.range(topic.stream(Partition(0))..);
        let mine = logs.take_while(|(stream, _)| stream.topic == *topic);
        Ok(mine
            .map(|(stream, log)| {
                let bounds = log.bounds(stream);
                let run = self.runs.iter().find(|run| run.stream == *stream);
                let next = run.map_or(bounds.next, |run| run.first);
                StreamView {
                    stream: stream.clone(),
                    incarnation: log.incarnation(),
                    start: bounds.start.min(next),
                    next,
                }
            })
            .collect())
    }
}
