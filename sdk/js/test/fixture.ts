// A broker for a test file and clients that are closed when a test ends, however it ends.

import { after, afterEach, before } from 'node:test';

import { BusClient, type BusClientOptions } from '../src/index.js';
import { Broker } from './broker.js';

/** Fast, because tests wait for it; the default delays have a test of their own. */
export const QUICK = { backoff: { startMs: 5, maxMs: 20 } };

export interface Fixture {
  broker: Broker;
  client(options?: BusClientOptions): BusClient;
}

export function withBroker(...args: string[]): Fixture {
  const clients: BusClient[] = [];
  const fixture: Partial<Fixture> = {};
  before(async () => {
    fixture.broker = await Broker.start(...args);
  });
  afterEach(async () => {
    await Promise.all(clients.splice(0).map((client) => client.close()));
  });
  after(() => fixture.broker?.remove());
  return Object.assign(fixture as Fixture, {
    client(options: BusClientOptions = {}) {
      const client = new BusClient(fixture.broker?.ws, { ...QUICK, ...options });
      clients.push(client);
      return client;
    },
  });
}
