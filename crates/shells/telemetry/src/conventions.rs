//! Names of attributes: OpenTelemetry's conventions for messaging as of August 2026, which are still marked as «in
//! development», and Millrace's own. They are here and nowhere else, because the former will change.

pub const SYSTEM: &str = "messaging.system";
/// The value of [`SYSTEM`].
pub const MILLRACE: &str = "millrace";
pub const OPERATION_NAME: &str = "messaging.operation.name";
/// `create`, `send`, `receive`, `process` or `settle`.
pub const OPERATION_TYPE: &str = "messaging.operation.type";
pub const DESTINATION: &str = "messaging.destination.name";
pub const PARTITION: &str = "messaging.destination.partition.id";
pub const GROUP: &str = "messaging.consumer.group.name";
pub const MESSAGE_ID: &str = "messaging.message.id";
pub const CONVERSATION_ID: &str = "messaging.message.conversation_id";
pub const BODY_SIZE: &str = "messaging.message.body.size";
pub const BATCH_COUNT: &str = "messaging.batch.message_count";
pub const ERROR_TYPE: &str = "error.type";
pub const NAMESPACE: &str = "millrace.namespace";
pub const OFFSET: &str = "millrace.offset";
pub const ATTEMPT: &str = "millrace.attempt";
/// How a delivery ended.
pub const SETTLED: &str = "millrace.settled";
pub const CAUSATION_ID: &str = "millrace.causation_id";
pub const ROOT_ID: &str = "millrace.root_id";
pub const DEPTH: &str = "millrace.depth";
pub const HANDLER: &str = "millrace.handler";
pub const SESSION: &str = "millrace.session";
pub const DURABILITY: &str = "millrace.durability";
pub const SERVICE_NAME: &str = "service.name";
pub const SERVICE_VERSION: &str = "service.version";
