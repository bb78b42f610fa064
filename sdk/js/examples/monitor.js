// Prints heartbeats as they come: node examples/monitor.js

import { BusClient } from 'millrace';

const bus = new BusClient();

const subscription = bus.subscribe(
  { topic: 'heartbeat.received', group: 'monitor', from: { kind: 'latest' }, max_inflight: 32 },
  (m) => {
    console.log('HB', m.envelope.payload);
    bus.ack({ type: 'ACK', topic: m.topic, partition: m.partition, group: m.group, offset: m.offset });
  },
  (error) => console.error(error.message),
);

await subscription.ready;
console.log('listening');

process.once('SIGINT', stop).once('SIGTERM', stop);

async function stop() {
  await bus.close();
}
