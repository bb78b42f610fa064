// A line said in one window is heard in all. The broker is named by the page's address: index.html?bus=ws://HOST:PORT
// The broker must be started with --allow-origin and the origin of this page.

import { BusClient, uuidv7 } from '../../dist/src/index.js';

const bus = new BusClient(new URLSearchParams(location.search).get('bus') ?? 'ws://127.0.0.1:7070', {
  onState: (state) => show('state', state),
});

function show(id, text) {
  document.getElementById(id).textContent = text;
}

// A group of its own for every window, so that each hears everything.
bus.subscribe(
  { topic: 'example.said', group: `window-${uuidv7()}` },
  (message) => {
    const item = document.createElement('li');
    item.textContent = `${message.offset}: ${message.envelope.payload.text}`;
    document.getElementById('heard').append(item);
    bus.ack(message);
  },
  (error) => show('state', error.message),
);

document.getElementById('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = document.getElementById('text').value;
  try {
    const { offset, durability } = await bus.publish('example.said', { text });
    show('receipt', `offset ${offset}, ${durability}`);
  } catch (error) {
    show('receipt', error.message);
  }
});

addEventListener('pagehide', () => void bus.close());
