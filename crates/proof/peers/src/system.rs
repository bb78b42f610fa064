//! The comparison: six servers, five loads.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    Millrace,
    NatsAlways,
    RedisAlways,
    Postgres,
    NatsDefault,
    RedisEverysec,
}

impl System {
    pub(crate) const ALL: [System; 6] = [
        System::Millrace,
        System::NatsAlways,
        System::RedisAlways,
        System::Postgres,
        System::NatsDefault,
        System::RedisEverysec,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            System::Millrace => "Millrace",
            System::NatsAlways => "NATS always",
            System::RedisAlways => "Redis always",
            System::Postgres => "PostgreSQL",
            System::NatsDefault => "NATS default",
            System::RedisEverysec => "Redis everysec",
        }
    }

    /// The name on the command line.
    pub(crate) fn slug(self) -> &'static str {
        match self {
            System::Millrace => "millrace",
            System::NatsAlways => "nats-always",
            System::RedisAlways => "redis-always",
            System::Postgres => "postgres",
            System::NatsDefault => "nats-default",
            System::RedisEverysec => "redis-everysec",
        }
    }

    /// Whether an answer means that the event is on disk.
    pub(crate) fn syncs_before_it_answers(self) -> bool {
        matches!(self, System::Millrace | System::NatsAlways | System::RedisAlways | System::Postgres)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Load {
    Serial,
    Inflight,
    Clients,
    Consume,
    Fanout,
}

impl Load {
    pub(crate) const ALL: [Load; 5] =
        [Load::Serial, Load::Inflight, Load::Clients, Load::Consume, Load::Fanout];

    /// The name of the load, and of its topic.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Load::Serial => "serial",
            Load::Inflight => "inflight",
            Load::Clients => "clients",
            Load::Consume => "consume",
            Load::Fanout => "fanout",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Load::Serial => "one client, one at a time",
            Load::Inflight => "one client, 256 in flight",
            Load::Clients => "8 clients, one at a time each",
            Load::Consume => "consume and ack a backlog",
            Load::Fanout => "fan-out, 1,000/s to 10 consumers",
        }
    }
}
