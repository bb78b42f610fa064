//! The connections that are open, for people who look at them or close them: whose they are and since when. The engine
//! and the CQRS loop know only their numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use millrace_broker::OutboundBacklog;
use millrace_kernel::OsBacklog;
use millrace_model::{Namespace, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The way a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// A WebSocket of the bus.
    Bus,
    /// A WebSocket of the CQRS loop.
    Loop,
    /// The Unix socket of the CQRS loop, which lists its connections itself.
    Socket,
}

impl Door {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Door::Bus => "ws",
            Door::Loop => "os",
            Door::Socket => "socket",
        }
    }
}

/// Names a connection in the HTTP interface: `ws-17`. Never used twice while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId {
    pub(crate) door: Door,
    pub(crate) number: u64,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.door.as_str(), self.number)
    }
}

impl FromStr for ConnectionId {
    type Err = ();

    fn from_str(text: &str) -> Result<ConnectionId, ()> {
        let (door, number) = text.split_once('-').ok_or(())?;
        let doors = [Door::Bus, Door::Loop, Door::Socket];
        let door = doors.into_iter().find(|one| one.as_str() == door).ok_or(())?;
        let number: u64 = number.parse().map_err(|_| ())?;
        let id = ConnectionId { door, number };
        // A connection has one name: `ws-017` and `ws-+17` are none.
        (id.to_string() == text).then_some(id).ok_or(())
    }
}

/// Bounded by `connections_max`: only connections with a seat are listed.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<BTreeMap<ConnectionId, Entry>>);

#[derive(Debug)]
struct Entry {
    facts: ConnectionFacts,
    told_to_go: Arc<Notify>,
}

#[derive(Clone, Debug)]
pub(crate) struct ConnectionFacts {
    pub(crate) agent: Option<String>,
    pub(crate) peer: String,
    pub(crate) since: Timestamp,
    /// A connection of the loop has none: its messages name their namespace.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) backlog: Backlog,
}

/// Tells how much waits for a connection.
#[derive(Clone, Debug)]
pub(crate) enum Backlog {
    Bus(OutboundBacklog),
    Loop(OsBacklog),
}

impl Connections {
    /// Lists a connection until the returned value is dropped.
    pub(crate) fn list(self: &Arc<Self>, id: ConnectionId, facts: ConnectionFacts) -> ListedConnection {
        let told_to_go = Arc::new(Notify::new());
        self.0.lock().insert(id, Entry { facts, told_to_go: told_to_go.clone() });
        ListedConnection { list: self.clone(), id, told_to_go }
    }

    /// A connection of the bus, by the number that the engine knows it by.
    pub(crate) fn of_bus(&self, number: u64) -> Option<ConnectionFacts> {
        self.get(ConnectionId { door: Door::Bus, number })
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<ConnectionFacts> {
        self.0.lock().get(&id).map(|entry| entry.facts.clone())
    }

    pub(crate) fn all(&self) -> Vec<(ConnectionId, ConnectionFacts)> {
        self.0.lock().iter().map(|(id, entry)| (*id, entry.facts.clone())).collect()
    }

    /// Tells a connection to close. Returns false if there is no such connection.
    pub(crate) fn send_away(&self, id: ConnectionId) -> bool {
        let list = self.0.lock();
        let found = list.get(&id);
        found.inspect(|entry| entry.told_to_go.notify_one()).is_some()
    }
}

#[derive(Debug)]
pub(crate) struct ListedConnection {
    list: Arc<Connections>,
    id: ConnectionId,
    told_to_go: Arc<Notify>,
}

impl ListedConnection {
    /// The connection has shown a token that names its agent.
    pub(crate) fn set_agent(&self, agent: &str) {
        if let Some(entry) = self.list.0.lock().get_mut(&self.id) {
            entry.facts.agent = Some(agent.to_owned());
        }
    }

    /// Waits until an administrator disconnects the connection. For one waiter.
    pub(crate) async fn sent_away(&self) {
        self.told_to_go.notified().await;
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.list.0.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_one_name() {
        let id = ConnectionId { door: Door::Bus, number: 17 };
        assert_eq!((id.to_string().as_str(), "ws-17".parse()), ("ws-17", Ok(id)));
        for text in ["", "ws", "ws-", "ws-017", "ws-+1", "ws--1", "http-1", "ws-1 ", "WS-1"] {
            assert_eq!(text.parse::<ConnectionId>(), Err(()), "{text:?}");
        }
    }
}
