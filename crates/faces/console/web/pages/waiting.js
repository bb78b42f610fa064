// The page Waiting: delayed events and timers of the loop.

import { ROOT, part, send } from '../api.js';
import { ask, snippet, toast } from '../parts/dialog.js';
import { badge, card, el, fill, head, link, remark, title } from '../parts/dom.js';
import { topicLink } from '../parts/links.js';
import { pages, press } from '../parts/pages.js';
import { poll } from '../parts/poll.js';
import { table } from '../parts/table.js';
import { count, countdown, size } from '../parts/time.js';
import { curl, may, missing } from '../state.js';

/** @typedef {import('../types.js').Delayed} Delayed */
/** @typedef {import('../types.js').Timer} Timer */

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Waiting',
    async open({ root, query, signal }) {
      const topic = query.get('topic') ?? '';
      const why = missing('admin');
      const events = table({
        caption: 'Delayed events, the next one first',
        key: (/** @type {Delayed} */ row) => row.entry,
        sort: 'due',
        columns: [
          { name: 'due', label: 'Due', by: (row) => row.due, cell: (row) => countdown(row.due) },
          { name: 'id', label: 'Event', class: 'mono', cell: (row) => row.id ?? '–' },
          { name: 'topic', label: 'Topic', by: (row) => row.topic, cell: (row) => link(topicLink(row.topic), row.topic) },
          { name: 'key', label: 'Key', class: 'mono', cell: (row) => row.key ?? '' },
          { name: 'for', label: 'Waits for', cell: (row) => (row.waitsFor === 'time' ? 'a time of day' : 'the end of a delay') },
          { name: 'size', label: 'Payload', class: 'num', by: (row) => row.payloadBytes, cell: (row) => size(row.payloadBytes) },
          { name: 'acts', label: '', cell: (row) => el('span', { class: 'bar' },
            press('Deliver now', why, () => deliver(row), () => void again()),
            press('Cancel…', why, () => cancelEvent(row), () => void again(), 'small danger')) },
        ],
      });
      const timers = table({
        caption: 'Timers of the loop, the next one first',
        key: (/** @type {Timer} */ row) => row.timer,
        columns: [
          { name: 'due', label: 'Due', cell: (row) => el('span', null, countdown(row.due), row.tryingAgain ? badge('warn', 'tries again', 'Nobody took its message yet.') : '') },
          { name: 'what', label: 'Sends', cell: (row) => el('span', null, `${row.kind} `, el('code', null, row.type)) },
          { name: 'by', label: 'Set by', cell: (row) => row.capability ?? row.agent ?? 'a client' },
          { name: 'durable', label: 'Kept', cell: (row) => (row.durable ? 'over restarts' : 'until the server ends') },
          { name: 'id', label: 'Timer', class: 'mono', cell: (row) => row.timer },
          { name: 'acts', label: '', cell: (row) => press('Cancel…', row.capability ? 'only the capability that set it can cancel it' : why, () => cancelTimer(row), () => void again(), 'small danger') },
        ],
      });
      const noEvents = el('div', { class: 'teach', hidden: true }, el('h3', null, 'No delayed events'),
        el('p', null, 'An event that is published with a delay waits here, on disk, and gets its place in the topic when it is due.'),
        snippet(`${curl()} ${ROOT.href}topics/hello/events -d '{"payload":1,"delay_ms":60000}'`));
      const noTimers = el('div', { class: 'teach', hidden: true }, el('h3', null, 'No timers'),
        el('p', null, 'A message of the loop that is to be sent later.'),
        snippet('millrace send --socket FILE \'{"kind":"command","type":"Timer.Set","data":{"delayMs":60000,"message":{"kind":"event","type":"Tea.Ready","data":{}}}}\''));
      const moreEvents = remark('There are more: GET /delayed lists all of them.');
      const moreTimers = remark('There are more: GET /timers lists all of them.');
      const cannot = may('os') ? null : el('p', { class: 'more' }, `Timers cannot be shown: ${missing('os')}.`);
      fill(root, head(title('Waiting',
        topic ? el('p', { class: 'sub' }, `Events of ${topic}. `, link('#/waiting', 'Show all')) : null)),
        card('Delayed events', events.box, moreEvents, noEvents),
        card('Timers', timers.box, moreTimers, noTimers, cannot));
      const show = (/** @type {{ show: (rows: any[], none: HTMLElement) => void }} */ list, /** @type {HTMLElement} */ none, /** @type {HTMLElement} */ further, /** @type {{ rows: any[], more: boolean }} */ found) => {
        list.show(found.rows, none);
        further.hidden = !found.more;
      };
      timers.box.hidden = true;
      const again = poll(signal, 1000, async () => {
        show(events, noEvents, moreEvents, await pages('/delayed', 'delayed', { signal, query: { topic } }));
        if (!cannot) show(timers, noTimers, moreTimers, await pages('/timers', 'timers', { signal }));
      });
    },
  };
}

/** @param {Delayed} row */
async function deliver(row) {
  await send('POST', `/delayed/${part(row.entry)}/now`);
  toast('It is published, under its own id.', row.id ? { link: ['Show it', `#/event/${part(row.id)}`] } : {});
}

/** @param {Delayed} row */
async function cancelEvent(row) {
  await ask({
    title: 'Cancel this event?',
    act: 'Never publish it',
    danger: true,
    body: [el('p', null, `Event ${row.id ?? 'without an id'} of ${row.topic} (${count(row.payloadBytes)} bytes) is removed and never published. Nothing brings it back.`)],
    done: async () => {
      await send('DELETE', `/delayed/${part(row.entry)}`);
      toast('It is cancelled.');
    },
  });
}

/** @param {Timer} row */
async function cancelTimer(row) {
  await ask({
    title: 'Cancel this timer?',
    act: 'Cancel timer',
    danger: true,
    body: [el('p', null, `The ${row.kind} `, el('code', null, row.type), ' is not sent. Nothing brings the timer back.')],
    done: async () => {
      await send('DELETE', `/timers/${part(row.timer)}`);
      toast('It is cancelled.');
    },
  });
}
