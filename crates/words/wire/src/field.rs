//! The table of all fields of the protocol: their names, and what each must hold, as errors quote it.

macro_rules! fields {
    ($($variant:ident $name:literal $expected:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Field {
            $($variant,)*
        }

        impl Field {
            pub(crate) const COUNT: usize = [$($name,)*].len();

            pub(crate) fn named(name: &str) -> Option<Field> {
                match name {
                    $($name => Some(Field::$variant),)*
                    _ => None,
                }
            }

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Field::$variant => $name,)*
                }
            }

            pub(crate) fn expected(self) -> &'static str {
                match self {
                    $(Field::$variant => $expected,)*
                }
            }
        }
    };
}

fields! {
    Type "type" "a string naming the kind of frame",
    Rid "rid" "a string of at most 255 bytes or a whole number",
    Topic "topic" "a string: the topic's name",
    Group "group" "a string: the group's name",
    Partition "partition" "a whole number from 0 to 4294967295",
    Offset "offset" "a whole number from 0 to 9007199254740991",
    Payload "payload" "any JSON value, null included",
    PayloadSha256 "payload_sha256" "64 hexadecimal digits: SHA-256 of the payload's bytes",
    Key "key" "a string without lone surrogates",
    Headers "headers" "an object of strings",
    Priority "priority" "a whole number from -2147483648 to 2147483647",
    Id "id" "a string of 1 to 255 printable ASCII characters",
    DelayMs "delay_ms" "a whole number of milliseconds, 0 or more and at most what the server allows (a year unless set)",
    DeliverAt "deliver_at" "a time in whole epoch milliseconds",
    Events "events" "an array of objects, each with a payload",
    From "from" "an object such as {\"kind\":\"earliest\"}",
    Kind "kind" "\"latest\", \"earliest\", \"offset\" or \"timestamp\"",
    Value "value" "a whole number from 0 to 9007199254740991: the offset, or the time in epoch milliseconds",
    Reset "reset" "true or false",
    MaxInflight "max_inflight" "a whole number, 1 or more and at most what the server allows (4096 unless set)",
    BatchMax "batch_max" "a whole number from 1 to 1000: events in one MESSAGES frame",
    AckMode "ack_mode" "\"cumulative\" or \"individual\"",
    Sticky "sticky" "true or false",
    Filter "filter" "an object such as {\"key\":\"k\",\"header\":[\"name\",\"value\"]}",
    Header "header" "an array of two strings: name and value",
    Reason "reason" "a string",
    Credits "credits" "a whole number from 0 to 9007199254740991",
    Token "token" "a string",
    Durability "durability" "\"fsync\", \"os\" or \"memory\"",
    Due "due" "a time in whole epoch milliseconds",
    Offsets "offsets" "an array of [partition, offset] pairs",
    Op "op" "a string: the type of frame that is answered",
    Partitions "partitions" "an array of {\"partition\", \"next\"} objects",
    Next "next" "a whole number from 0 to 9007199254740991",
    Envelope "envelope" "an object: the event",
    Envelopes "envelopes" "an array of events",
    Ts "ts" "a time in whole epoch milliseconds",
    Attempts "attempts" "a whole number from 1 to 4294967295",
    Code "code" "an error code",
    Message "message" "a string",
    RetentionMs "retentionMs" "a whole number of milliseconds from 1 to 9007199254740991",
    RetentionBytes "retentionBytes" "a whole number of bytes from 1 to 9007199254740991",
    MaxAttempts "maxAttempts" "a whole number from 1 to 4294967295",
    AckTimeoutMs "ackTimeoutMs" "a whole number of milliseconds from 1 to 9007199254740991",
    DedupeWindowMs "dedupeWindowMs" "a whole number of milliseconds from 0 to 9007199254740991",
    Compact "compact" "true or false",
    TopicAckMode "ackMode" "\"cumulative\" or \"individual\"",
    PublishAcl "publishACL" "an array of at most 256 names: an agent, a role, * or !AGENT to deny",
    SubscribeAcl "subscribeACL" "an array of at most 256 names: an agent, a role, * or !AGENT to deny",
    Schema "schema" "a JSON Schema (draft 2020-12): an object, true or false",
    GroupAcl "groupACL" "an object of at most 256 groups (* for all others), each with an array of names as in subscribeACL",
    Leader "leader" "the URL of the leading server, or null when no server leads",
    Limit "limit" "a whole number from 1 to 10000",
    DryRun "dryRun" "true or false",
}
