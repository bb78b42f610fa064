// Work over many letters that the server does by itself.

import { get, part, send } from '../api.js';
import { toast } from '../parts/dialog.js';
import { badge, barred, button, el, fill, head, link, panel, teach, title } from '../parts/dom.js';
import { poll } from '../parts/poll.js';
import { table } from '../parts/table.js';
import { count, time } from '../parts/time.js';
import { missing } from '../state.js';

/** @typedef {import('../types.js').Job} Job */

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Jobs',
    async open({ root, signal }) {
      /** @type {Record<string, string>} */
      const tones = { running: 'accent', done: 'good', cancelled: 'warn', failed: 'bad' };
      const why = missing('subscribe', 'publish');
      const list = table({
        caption: 'Jobs, the newest first',
        key: (/** @type {Job} */ row) => row.job,
        columns: [
          { name: 'what', label: 'What', cell: (row) => el('span', null, `${row.kind} letters of `, link(`#/letters/${part(row.topic)}`, row.topic)) },
          { name: 'filter', label: 'Which', cell: (row) => Object.entries(row.filter).map(([name, value]) => `${name}: ${value}`).join(', ') },
          { name: 'state', label: 'State', cell: (row) => badge(tones[row.state] ?? '', row.state, row.error ?? null) },
          { name: 'done', label: 'Done', class: 'num', cell: (row) => `${count(row.done)} of ${count(row.total)}` },
          { name: 'told', label: 'Of these', cell: (row) => [row.replayed ? `${count(row.replayed)} published` : '', row.duplicates ? `${count(row.duplicates)} before` : '', row.deleted ? `${count(row.deleted)} deleted` : '', row.failed ? `${count(row.failed)} without payload` : '', row.error ?? ''].filter(Boolean).join(', ') },
          { name: 'by', label: 'By', cell: (row) => row.by ?? '–' },
          { name: 'started', label: 'Begun', cell: (row) => time(row.startedAt) },
          { name: 'act', label: '', cell: (row) => (row.state === 'running' ? button('btn small', 'Cancel', () => void cancel(row), barred(why)) : '') },
        ],
      });
      const none = teach('No jobs', 'Open the dead letters of a topic, choose a reason, and replay or delete all that match. The server does it, also when this page is closed or the server is started again.');
      fill(root, head(title('Jobs')), panel(list.box, none));
      const again = poll(signal, 1000, async () => {
        const found = /** @type {import('../types.js').JobList} */ (await get('/jobs', { signal }));
        list.show(found.jobs, none);
      });
      /** @param {Job} job */
      async function cancel(job) {
        await send('DELETE', `/jobs/${part(job.job)}`);
        toast('The job ends after the letters it is at. Nothing is undone.');
        void again();
      }
    },
  };
}
