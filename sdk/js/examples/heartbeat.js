// Says every three seconds that this process lives: node examples/heartbeat.js
// BUS_URL names the broker, `name` this process.

import { BusClient } from 'millrace';

const bus = new BusClient();

async function beat() {
  const payload = { pid: process.pid, name: process.env.name, ts: Date.now() };
  try {
    const { offset, durability } = await bus.publish('heartbeat.received', payload, `proc:${process.pid}`);
    console.log(`beat ${offset} (${durability})`);
  } catch (error) {
    // A heart that the broker does not hear goes on beating.
    console.error(`not heard: ${error.message}`);
  }
}

const timer = setInterval(beat, 3000);
void beat();

process.once('SIGINT', stop).once('SIGTERM', stop);

async function stop() {
  clearInterval(timer);
  await bus.flush();
  await bus.close();
}
