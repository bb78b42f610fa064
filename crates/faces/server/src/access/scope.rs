//! The rights of a token: a closed list.

use std::fmt;
use std::str::FromStr;

/// `admin` includes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Publish events.
    Publish,
    /// Read events: subscribe, page through history, move groups, look at topics.
    Subscribe,
    /// Look at the server: `/stats`, `/metrics`.
    Metrics,
    /// Look at everything that `subscribe` and `metrics` show, without payloads, keys and header values, and change
    /// nothing.
    Inspect,
    /// Send messages to the CQRS loop.
    Os,
    /// Create, change and delete topics, which includes saying who may use them.
    Admin,
}

impl Scope {
    pub const ALL: &[Scope] =
        &[Scope::Publish, Scope::Subscribe, Scope::Metrics, Scope::Inspect, Scope::Os, Scope::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Publish => "publish",
            Scope::Subscribe => "subscribe",
            Scope::Metrics => "metrics",
            Scope::Inspect => "inspect",
            Scope::Os => "os",
            Scope::Admin => "admin",
        }
    }

    /// Whether a token with this scope may do something that needs the scope `needed`.
    pub(crate) fn covers(self, needed: Scope) -> bool {
        self == needed || self == Scope::Admin || (self == Scope::Inspect && needed == Scope::Metrics)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = ();

    fn from_str(text: &str) -> Result<Scope, ()> {
        Scope::ALL.iter().copied().find(|scope| scope.as_str() == text).ok_or(())
    }
}
