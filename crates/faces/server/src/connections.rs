//! The connections of the bus that are open, for people who look at groups: whose they are and since when. The engine
//! knows only their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::Timestamp;
use parking_lot::Mutex;

/// Bounded by `connections_max`: only connections with a seat are listed.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<BTreeMap<u64, ConnectionFacts>>);

#[derive(Clone, Debug)]
pub(crate) struct ConnectionFacts {
    pub(crate) agent: Option<String>,
    pub(crate) peer: String,
    pub(crate) since: Timestamp,
}

impl Connections {
    /// Lists a connection until the returned value is dropped.
    pub(crate) fn list(self: &Arc<Self>, number: u64, facts: ConnectionFacts) -> ListedConnection {
        self.0.lock().insert(number, facts);
        ListedConnection { list: self.clone(), number }
    }

    pub(crate) fn get(&self, number: u64) -> Option<ConnectionFacts> {
        self.0.lock().get(&number).cloned()
    }
}

#[derive(Debug)]
pub(crate) struct ListedConnection {
    list: Arc<Connections>,
    number: u64,
}

impl ListedConnection {
    /// An AUTH frame has named the agent.
    pub(crate) fn set_agent(&self, agent: &str) {
        if let Some(facts) = self.list.0.lock().get_mut(&self.number) {
            facts.agent = Some(agent.to_owned());
        }
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.list.0.lock().remove(&self.number);
    }
}
