// Names of the document that this broker was first described in (its `bus/types.ts`, `bus/util.ts`, `bus/metrics.ts`
// and `bus/acls.ts`), so that programs written against it find them here.

import type { DeliveryPlace, FlowFrame, Headers, NewEvent } from './frames.js';

export type UUID = string;
export type Millis = number;
export type Partition = number;
export type Vec8 = [number, number, number, number, number, number, number, number];

export interface BrokerEnvelope<T = unknown> {
  id: UUID;
  ts: Millis;
  topic: string;
  key?: string;
  partition?: Partition;
  headers?: Headers;
  /** SHA-256 of the payload's bytes in hexadecimal digits, where it was asked for. */
  payload_sha256?: string;
  payload: T;
}

/** An event as it is stored. */
export interface EventRow<T = unknown> extends BrokerEnvelope<T> {
  offset: number;
  attempts?: number;
}

/** How far a group is in one partition. */
export interface GroupOffset {
  topic: string;
  partition: Partition;
  group: string;
  /** The highest offset up to which everything is done. */
  lastCommitted: number;
  /** When that was made durable. */
  updatedTs: Millis;
}

/** Where a group begins. `From` says more exactly which kinds need a value. */
export interface FromSpec {
  kind: 'latest' | 'earliest' | 'offset' | 'timestamp';
  value?: number;
  reset?: boolean;
}

/** An ACK or NACK; `reason` is for a NACK. */
export interface Ack extends DeliveryPlace {
  type: 'ACK' | 'NACK';
  reason?: string;
}

export interface IMessageFrame<T = unknown> extends DeliveryPlace {
  type: 'MESSAGE';
  envelope: BrokerEnvelope<T> & { offset?: number };
}

export interface PublishRequest<T = unknown> extends NewEvent<T> {
  type: 'PUBLISH';
  topic: string;
}

export type Flow = FlowFrame;

/** Who wants to do something; the broker's own lists are `publishACL` and `subscribeACL` of a topic. */
export interface ACLCtx {
  agent?: string;
  scopes?: string[];
}
export type ACLChecker = (topic: string, action: 'publish' | 'subscribe', ctx: ACLCtx) => boolean | Promise<boolean>;

export function now(): Millis {
  return Date.now();
}

/** Returns the partition in which the broker puts events of this key: the same hash, over the key's UTF-16 units. The
 * broker gives events without a key to the partitions in turn; here such an event gets any one. */
export function assignPartition(key: string | undefined, partitions = 1): Partition {
  if (!partitions || partitions <= 1) return 0;
  const text = key ?? String(Math.random());
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = ((hash << 5) - hash + text.charCodeAt(i)) | 0;
  return Math.abs(hash) % partitions;
}

export interface BrokerMetrics {
  published: number;
  delivered: number;
  acks: number;
  redeliveries: number;
  inflight: number;
  byTopic: Record<string, { pub: number; del: number }>;
}

/** Counters for a service's own use, in the shape of the broker's `GET /stats` and `system.metrics`. */
export class Metrics {
  s: BrokerMetrics = { published: 0, delivered: 0, acks: 0, redeliveries: 0, inflight: 0, byTopic: {} };

  inc(counter: Exclude<keyof BrokerMetrics, 'byTopic'>, topic?: string): void {
    this.s[counter] += 1;
    if (topic === undefined) return;
    const counts = (this.s.byTopic[topic] ??= { pub: 0, del: 0 });
    if (counter === 'published') counts.pub += 1;
    if (counter === 'delivered') counts.del += 1;
  }

  /** Returns a copy. */
  snapshot(): BrokerMetrics {
    return structuredClone(this.s);
  }
}
