// Run by `secure.test.ts` as a process of its own, because Node reads whom it trusts when it starts: everything a client
// does, with a token and over TLS, and what happened as one line.

import WebSocket from 'ws';

import { openBrowserTransport } from '../src/browser-transport.js';
import { BusClient, type BusError } from '../src/index.js';

const [url, token, way] = process.argv.slice(2);
if (!url || !token) throw new Error('give URL and TOKEN');
const browser = way === 'browser';
// Browsers have this; Node 20 does not.
if (browser) Object.assign(globalThis, { WebSocket });

const bus = new BusClient(url, {
  token,
  backoff: { startMs: 5, maxMs: 20 },
  giveUpAfterMs: 2_000,
  ...(browser ? { openTransport: openBrowserTransport } : {}),
});
try {
  const received = new Promise<unknown>((resolve, reject) => {
    const subscription = bus.subscribe({ topic: 'secure', group: `g-${String(way)}` }, (message) => {
      bus.ack(message);
      resolve(message.envelope.payload);
    });
    subscription.ready.then(() => bus.publish('secure', { way })).catch(reject);
  });
  console.log(JSON.stringify({ received: await received }));
} catch (error) {
  const { code, message } = error as BusError;
  console.log(JSON.stringify({ code, message }));
}
await bus.close();
