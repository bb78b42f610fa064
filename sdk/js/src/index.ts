// Clients of the Millrace broker and of its CQRS loop for Node and browsers.
//
// Not included: the rest of the HTTP interface, and decisions about sending again a publish that the server refused.

export type { BackoffOptions } from './backoff.js';
export { BusClient, type DelayedPublishOptions, type NackOptions, type PublishOptions } from './client.js';
export * from './errors.js';
export * from './frames.js';
export type { LinkState } from './link.js';
export type { OnError, OnMessage, SubscribeRequest } from './membership.js';
export type { OpenTelemetryApi } from './open-telemetry.js';
export type { BusClientOptions } from './options.js';
export { OsClient } from './os-client.js';
export { OsError, type OsFault, type OsKind, type OsMessage, type OsMetadata } from './os-message.js';
export type { OsClientOptions, OsRequestOptions } from './os-options.js';
export { drainOutbox, type DrainOptions, type DrainReport, type OutboxRow, type OutboxStore } from './outbox.js';
export { MemoryOutbox } from './memory-outbox.js';
export type { Published, PublishedBatch, Scheduled } from './receipts.js';
export type { PayloadSchema, SchemaFunction, StandardIssue, StandardResult, StandardSchema } from './schema.js';
export * from './source-names.js';
export type { FollowLeader } from './servers.js';
export type { Subscription } from './subscription.js';
export { type StartOptions, type Task, type TaskHandler, TaskQueue } from './task-queue.js';
export type { TopicConfig } from './topics.js';
export type { OpenTransport, TlsOptions, Transport, TransportEnd, TransportEvents } from './transport.js';
export { uuidv7 } from './uuid.js';
