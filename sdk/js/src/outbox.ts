// The outbox: a service writes what it wants to publish into its own database, in the transaction that makes it true,
// and this sends it on. The row's id is the event's id, so a row that is sent twice, because something crashed between
// the publish and the mark, is stored once.

import type { BusClient } from './client.js';
import { BusError } from './errors.js';
import type { Headers } from './frames.js';
import type { Published } from './receipts.js';

export interface OutboxRow<T = unknown> {
  /** 1 to 255 printable ASCII characters; a UUID is good. */
  id: string;
  topic: string;
  key?: string;
  headers?: Headers;
  payload: T;
  createdTs: number;
  sentTs?: number;
  /** Publishes the server refused. */
  attempts?: number;
}

/** What a database has to offer. */
export interface OutboxStore<Row extends OutboxRow = OutboxRow> {
  /** At most `limit` unsent rows with fewer than `maxAttempts` refusals, oldest first, none of them in another
   * drainer's hands. A claim should expire, for drainers that die. */
  claim(limit: number, maxAttempts: number): Promise<Row[]>;
  markSent(row: Row, receipt: Published): Promise<void>;
  /** Counts an attempt, keeps the error, and gives the claim back. */
  markError(row: Row, error: BusError): Promise<void>;
}

export interface DrainOptions {
  batch?: number;
  maxAttempts?: number;
}

export interface DrainReport {
  claimed: number;
  sent: number;
  refused: number;
}

/** One batch. Call it again while `claimed` is `batch`, and every now and then.
 *
 * A row is marked as sent only when the server has confirmed it. A refusal is marked as the row's error; anything else
 * that fails (the client is closed, the store does not answer) is thrown when the rest of the batch has ended, and the
 * row stays claimed until its claim expires. */
export async function drainOutbox<Row extends OutboxRow>(
  store: OutboxStore<Row>,
  bus: BusClient,
  { batch = 100, maxAttempts = 10 }: DrainOptions = {},
): Promise<DrainReport> {
  const rows = await store.claim(batch, maxAttempts);
  const report: DrainReport = { claimed: rows.length, sent: 0, refused: 0 };
  const sending: Promise<void>[] = [];
  for (const row of rows) {
    // Many in flight at once, which keeps their order: one connection is read from front to back. A closed client has
    // no room, and says so to the publish.
    await bus.waitForRoom().catch(() => {});
    const sent = send(store, bus, row, report);
    // Looked at when all have ended.
    sent.catch(() => {});
    sending.push(sent);
  }
  const failure = (await Promise.allSettled(sending)).find((outcome) => outcome.status === 'rejected');
  if (failure) throw failure.reason;
  return report;
}

async function send<Row extends OutboxRow>(
  store: OutboxStore<Row>,
  bus: BusClient,
  row: Row,
  report: DrainReport,
): Promise<void> {
  const { id, topic, key, headers, payload } = row;
  let receipt: Published;
  try {
    receipt = await bus.publish(topic, payload, {
      id,
      ...(key === undefined ? {} : { key }),
      ...(headers === undefined ? {} : { headers }),
    });
  } catch (error) {
    if (!isRowsFault(error)) throw error;
    await store.markError(row, error);
    report.refused += 1;
    return;
  }
  await store.markSent(row, receipt);
  report.sent += 1;
}

/** As against the client's being closed or full, which says nothing about the row. */
function isRowsFault(error: unknown): error is BusError {
  return error instanceof BusError && !['closed', 'queue_full', 'unreachable', 'rejected'].includes(error.code);
}
