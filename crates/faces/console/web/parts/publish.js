// The form that publishes an event, empty or filled from one that exists.

import { send, part } from '../api.js';
import { el } from './dom.js';
import { ask, field, toast } from './dialog.js';
import { eventLink } from './event.js';
import { pretty } from './json.js';
import { bodyOf } from './text.js';

/** @param {string} topic @param {import('./json.js').Envelope} [like] */
export async function publish(topic, like) {
  const payload = el('textarea', { rows: 9, spellcheck: 'false', 'aria-label': 'Payload' });
  payload.value = like ? pretty(like.payload) : '{\n  "hello": "world"\n}';
  const key = el('input', { type: 'text', value: like?.key ?? '', autocomplete: 'off' });
  const id = el('input', { type: 'text', autocomplete: 'off', placeholder: 'made by the server' });
  const delay = el('input', { type: 'number', min: '0', placeholder: '0' });
  const headers = el('textarea', { rows: 2, spellcheck: 'false', placeholder: 'name: value' });
  const own = (like?.headers ?? []).filter(([name]) => !/^x-(dlq|replayed)-/.test(name));
  headers.value = own.map(([name, value]) => `${name}: ${value}`).join('\n');
  await ask({
    title: `Publish to ${topic}`,
    wide: true,
    act: 'Publish',
    body: [
      field('Payload: any JSON', payload, 'Sent as it is written here, digit for digit.'),
      el('div', { class: 'fields' },
        field('Key', key, 'Events of one key stay in order.'),
        field('Id', id, 'The same id is stored once.'),
        field('Delay in milliseconds', delay)),
      field('Headers, one per line', headers),
    ],
    done: async () => {
      const body = bodyOf({ payload: payload.value, key: key.value, id: id.value, delay: delay.value, headers: headers.value });
      const done = /** @type {any} */ (await send('POST', `/topics/${part(topic)}/events`, body));
      if (done.offset === undefined) toast('Stored. It is delivered when it is due.');
      else toast('Published, on disk.', { link: ['Show it', eventLink(topic, done.partition, done.offset)] });
    },
  });
}
