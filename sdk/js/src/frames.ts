// Every frame of the WebSocket, one JSON object each. `test/frames.test.ts` holds these types against what the real
// server sends and takes, so neither can drift.

import type { FromSpec } from './source-names.js';

/** A number or string that the server echoes in its answer. */
export type Rid = number | string;
export type Headers = Record<string, string>;
export type Durability = 'memory' | 'os' | 'fsync' | 'replicated';
export type AckMode = 'cumulative' | 'individual';

/** Where a group without a commit begins. `reset` seeks there although the group has a commit. */
export type From =
  { kind: 'latest' | 'earliest'; reset?: boolean } | { kind: 'offset' | 'timestamp'; value: number; reset?: boolean };

export interface Filter {
  key?: string;
  header?: [name: string, value: string];
}

// Frames that a client sends.

export interface NewEvent<T = unknown> {
  payload: T;
  key?: string;
  headers?: Headers;
  /** The same id on the same topic within the dedupe window is stored once. */
  id?: string;
  priority?: number;
}

export interface PublishFrame<T = unknown> extends NewEvent<T> {
  type: 'PUBLISH';
  topic: string;
  delay_ms?: number;
  deliver_at?: number;
  rid?: Rid;
}

export interface PublishBatchFrame<T = unknown> {
  type: 'PUBLISH_BATCH';
  topic: string;
  events: NewEvent<T>[];
  rid?: Rid;
}

export interface SubscribeFrame {
  type: 'SUBSCRIBE';
  topic: string;
  group: string;
  from?: From | FromSpec;
  max_inflight?: number;
  /** Absent: as the topic or the server has it. */
  ack_mode?: AckMode;
  /** Events of one key go to one member of the group, one at a time. */
  sticky?: boolean;
  filter?: Filter;
  /** Most events in one frame, 1 to 1,000; absent: one. Fewer wake-ups where many events wait. Handlers see no
   * difference. */
  batch_max?: number;
  rid?: Rid;
}

export interface UnsubscribeFrame {
  type: 'UNSUBSCRIBE';
  topic: string;
  group: string;
  rid?: Rid;
}

/** Which delivery an ACK or NACK is about. */
export interface DeliveryPlace {
  topic: string;
  partition: number;
  group: string;
  offset: number;
}

export interface AckFrame extends DeliveryPlace {
  type: 'ACK';
  rid?: Rid;
}

export interface NackFrame extends DeliveryPlace {
  type: 'NACK';
  reason?: string;
  delay_ms?: number;
  rid?: Rid;
}

export interface FlowFrame {
  type: 'FLOW';
  credits: number;
  rid?: Rid;
}

export interface PingFrame {
  type: 'PING';
  rid?: Rid;
}

export interface AuthFrame {
  type: 'AUTH';
  token: string;
  rid?: Rid;
}

export type ClientFrame =
  | PublishFrame
  | PublishBatchFrame
  | SubscribeFrame
  | UnsubscribeFrame
  | AckFrame
  | NackFrame
  | FlowFrame
  | PingFrame
  | AuthFrame;

// Frames that the server sends.

export interface PublishedFrame {
  type: 'PUBLISHED';
  topic: string;
  partition: number;
  offset: number;
  id: string;
  durability: Durability;
  rid?: Rid;
}

/** The answer to a delayed event: it gets its offset when it is due. */
export interface ScheduledFrame {
  type: 'PUBLISHED';
  topic: string;
  due: number;
  id: string;
  durability: Durability;
  rid?: Rid;
}

export interface PublishedBatchFrame {
  type: 'PUBLISHED';
  topic: string;
  /** One pair per event, in the order of the batch. */
  offsets: [partition: number, offset: number][];
  durability: Durability;
  rid?: Rid;
}

export interface Position {
  partition: number;
  /** The offset the group reads next: its commit + 1. */
  next: number;
}

export interface OkFrame {
  type: 'OK';
  op: Exclude<ClientFrame['type'], 'PUBLISH' | 'PUBLISH_BATCH' | 'SUBSCRIBE' | 'PING'>;
  rid?: Rid;
}

export interface SubscribedFrame {
  type: 'OK';
  op: 'SUBSCRIBE';
  topic: string;
  group: string;
  partitions: Position[];
  rid?: Rid;
}

export interface Envelope<T = unknown> {
  id: string;
  /** Epoch milliseconds, set in the commit. */
  ts: number;
  topic: string;
  key?: string;
  partition: number;
  offset: number;
  headers?: Headers;
  /** Absent: 100. */
  priority?: number;
  /** SHA-256 of the payload's bytes in hexadecimal digits, with the option `payloadSha256`. */
  payload_sha256?: string;
  payload: T;
  /** Which delivery this is, from the second on. */
  attempts?: number;
}

export interface MessageFrame<T = unknown> extends DeliveryPlace {
  type: 'MESSAGE';
  envelope: Envelope<T>;
}

/** Several deliveries of one partition, on request (`batch_max`). */
export interface MessagesFrame<T = unknown> extends Omit<DeliveryPlace, 'offset'> {
  type: 'MESSAGES';
  envelopes: Envelope<T>[];
}

export interface PongFrame {
  type: 'PONG';
  rid?: Rid;
}

export const ERROR_CODES = [
  'bad_json',
  'bad_frame',
  'unknown_type',
  'bad_topic',
  'bad_group',
  'unauthorized',
  'forbidden',
  'rate_limited',
  'too_large',
  'unknown_offset',
  'filter_conflict',
  'group_busy',
  'limit_reached',
  'schema_mismatch',
  'storage_failed',
  'shutting_down',
  'moved',
] as const;

export type ErrorCode = (typeof ERROR_CODES)[number];

export interface ErrorFrame {
  type: 'ERROR';
  code: ErrorCode;
  message: string;
  rid?: Rid;
  topic?: string;
  group?: string;
  partition?: number;
  offset?: number;
  /** With code `moved`: the URL of the server that leads, null when no server leads right now. */
  leader?: string | null;
}

export type ServerFrame =
  | PublishedFrame
  | ScheduledFrame
  | PublishedBatchFrame
  | OkFrame
  | SubscribedFrame
  | MessageFrame
  | MessagesFrame
  | PongFrame
  | ErrorFrame;
