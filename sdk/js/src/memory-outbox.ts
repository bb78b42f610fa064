// An outbox in memory: for tests, and to show what a store owes. A database does the same with a transaction.

import type { BusError } from './errors.js';
import type { OutboxRow, OutboxStore } from './outbox.js';

const CLAIM_MS = 30_000;

interface Kept extends OutboxRow {
  claimedUntil?: number;
  lastError?: string;
}

export class MemoryOutbox implements OutboxStore {
  readonly rows = new Map<string, Kept>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  add(row: Omit<OutboxRow, 'createdTs'>): void {
    this.rows.set(row.id, { ...row, createdTs: this.#now() });
  }

  async claim(limit: number, maxAttempts: number): Promise<OutboxRow[]> {
    const now = this.#now();
    const free = [...this.rows.values()].filter(
      (row) => row.sentTs === undefined && (row.attempts ?? 0) < maxAttempts && (row.claimedUntil ?? 0) <= now,
    );
    const claimed = free.slice(0, limit);
    for (const row of claimed) row.claimedUntil = now + CLAIM_MS;
    return claimed.map((row) => ({ ...row }));
  }

  async markSent({ id }: OutboxRow): Promise<void> {
    this.#kept(id).sentTs = this.#now();
  }

  async markError({ id }: OutboxRow, error: BusError): Promise<void> {
    const kept = this.#kept(id);
    kept.attempts = (kept.attempts ?? 0) + 1;
    kept.lastError = error.message;
    delete kept.claimedUntil;
  }

  async release(rows: OutboxRow[]): Promise<void> {
    for (const { id } of rows) delete this.#kept(id).claimedUntil;
  }

  #kept(id: string): Kept {
    const kept = this.rows.get(id);
    if (!kept) throw new Error(`there is no row ${id}`);
    return kept;
  }
}
