// The outbox: a service writes what it wants to publish into its own database, in the transaction that makes it true,
// and this sends it on. The row's id is the event's id, so a row that is sent twice, because something crashed between
// the publish and the mark, is stored once.

import type { BackoffOptions } from './backoff.js';
import type { BusClient } from './client.js';
import type { BusError } from './errors.js';
import type { Headers } from './frames.js';
import { Pauses } from './pauses.js';
import type { Published } from './receipts.js';
import { verdictOn } from './verdicts.js';

const BATCH_DEFAULT = 100;
const MAX_ATTEMPTS_DEFAULT = 10;
/** A third of the 30 s that a claim should live. */
const PAUSE_MS_MAX_DEFAULT = 10_000;

export interface OutboxRow<T = unknown> {
  /** 1 to 255 printable ASCII characters; a UUID is good. */
  id: string;
  topic: string;
  /** Databases say null for nothing. */
  key?: string | null;
  headers?: Headers | null;
  payload: T;
  createdTs: number;
  sentTs?: number;
  /** Publishes that were refused for a fault of the row. */
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
  /** Gives claims back and counts nothing. Without it these rows wait until their claims expire. */
  release?(rows: Row[]): Promise<void>;
}

export interface DrainOptions {
  batch?: number;
  maxAttempts?: number;
  /** How long one call waits in all for a server that takes nothing just now; less than a claim lives. */
  pauseMsMax?: number;
  /** The waits, where the server does not say how long. */
  backoff?: BackoffOptions;
}

export interface DrainReport {
  claimed: number;
  sent: number;
  /** For a fault of the row: counted as an attempt. */
  refused: number;
  /** Neither sent nor counted, if there are any, and the last reason. A later call has them again. */
  postponed?: { rows: number; error: BusError };
}

/** One batch. Call it again while `claimed` is `batch`, and every now and then.
 *
 * A row is marked as sent only when the server has confirmed it, and counted as refused only for a fault of its own
 * (`verdicts.ts`). When the server takes nothing just now, the drainer waits, as long as the server asks for, and sends
 * the rest one by one, so that no row overtakes another; what is left after `pauseMsMax` is given back. Any other
 * failure (the client is closed, the store does not answer) is thrown when everything in flight has ended. */
export async function drainOutbox<Row extends OutboxRow>(
  store: OutboxStore<Row>,
  bus: BusClient,
  options: DrainOptions = {},
): Promise<DrainReport> {
  const { batch = BATCH_DEFAULT, maxAttempts = MAX_ATTEMPTS_DEFAULT, pauseMsMax = PAUSE_MS_MAX_DEFAULT } = options;
  const pauses = new Pauses(pauseMsMax, options.backoff ?? {}, bus.signal);
  const rows = await store.claim(batch, maxAttempts);
  return new Drain(store, bus, rows, pauses).run();
}

/** Why no more rows are sent for now. */
interface Halt {
  verdict: 'pause' | 'stop';
  error: BusError;
}

class Drain<Row extends OutboxRow> {
  readonly #store: OutboxStore<Row>;
  readonly #bus: BusClient;
  readonly #pauses: Pauses;
  readonly #report: DrainReport;
  /** Still to be sent, oldest first. */
  #left: Set<Row>;

  constructor(store: OutboxStore<Row>, bus: BusClient, rows: Row[], pauses: Pauses) {
    this.#store = store;
    this.#bus = bus;
    this.#pauses = pauses;
    this.#report = { claimed: rows.length, sent: 0, refused: 0 };
    this.#left = new Set(rows);
  }

  async run(): Promise<DrainReport> {
    let halt = await this.#send({ alone: false });
    while (halt) {
      if (halt.verdict === 'stop' || !(await this.#pauses.after(halt.error))) {
        await this.#store.release?.([...this.#left]);
        if (halt.verdict === 'stop') throw halt.error;
        this.#postponed(this.#left.size, halt.error);
        break;
      }
      halt = await this.#send({ alone: true });
    }
    return this.#report;
  }

  /** Sends what is left until something is in the way. Many in flight at once keep their order, because one connection
   * is read from front to back; but not when some of them are refused, and then each is sent `alone`. */
  async #send({ alone }: { alone: boolean }): Promise<Halt | undefined> {
    let halt: Halt | undefined;
    const sending: Promise<void>[] = [];
    for (const row of this.#left) {
      // A closed client has no room, and says so to the publish.
      await this.#bus.waitForRoom().catch(() => {});
      if (halt) break;
      const sent = this.#sendOne(row).then((met) => {
        halt ??= met;
      });
      // A store that fails is looked at when all have ended.
      sent.catch(() => {});
      sending.push(sent);
      if (alone) await sent;
    }
    const failure = (await Promise.allSettled(sending)).find((outcome) => outcome.status === 'rejected');
    if (failure) throw failure.reason;
    return halt;
  }

  /** Rejects only for what the store does. */
  async #sendOne(row: Row): Promise<Halt | undefined> {
    const { id, topic, key, headers, payload } = row;
    let receipt: Published;
    try {
      receipt = await this.#bus.publish(topic, payload, {
        id,
        ...(key === undefined || key === null ? {} : { key }),
        ...(headers ? { headers } : {}),
      });
    } catch (thrown) {
      return this.#failed(row, thrown as BusError);
    }
    await this.#store.markSent(row, receipt);
    this.#left.delete(row);
    this.#report.sent += 1;
    this.#pauses.progress();
    return undefined;
  }

  async #failed(row: Row, error: BusError): Promise<Halt | undefined> {
    const verdict = verdictOn(error);
    if (verdict === 'pause' || verdict === 'stop') return { verdict, error };
    if (verdict === 'row') {
      await this.#store.markError(row, error);
      this.#report.refused += 1;
    } else {
      // Its claim is kept until it expires: given back at once, it would be claimed again before all others.
      this.#postponed(1, error);
    }
    this.#left.delete(row);
    return undefined;
  }

  #postponed(rows: number, error: BusError): void {
    this.#report.postponed = { rows: (this.#report.postponed?.rows ?? 0) + rows, error };
  }
}
