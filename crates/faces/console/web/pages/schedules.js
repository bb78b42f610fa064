// Events that sessions send by the clock: when, the next five, run now, pause.

import { part, send } from '../api.js';
import { snippet, toast } from '../parts/dialog.js';
import { badge, el, faint, fill, head, link, panel, remark, teach, title } from '../parts/dom.js';
import { topicLink } from '../parts/links.js';
import { pages, press } from '../parts/pages.js';
import { poll } from '../parts/poll.js';
import { number, table, when } from '../parts/table.js';
import { count, countdown, moment } from '../parts/time.js';
import { missing } from '../state.js';

/** @typedef {import('../types.js').Schedule} Schedule */

const TEACH = `let nightly = Schedule::cron("30 2 * * 1-5", CleanupDue {})?.named("nightly").zone("Europe/Berlin")?;
session.run(handlers![..], vec![nightly])`;

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Schedules',
    async open({ root, signal }) {
      const why = missing('admin');
      const path = (/** @type {Schedule} */ row, /** @type {string} */ act) => `/schedules/${part(row.name)}/${act}`;
      const run = async (/** @type {Schedule} */ row) => {
        await send('POST', path(row, 'run'));
        toast(`${row.name} fires once, as soon as a session that has it looks.`);
      };
      const list = table({
        caption: 'Schedules',
        key: (/** @type {Schedule} */ row) => row.name,
        columns: [
          { name: 'name', label: 'Schedule', by: (row) => row.name, cell: (row) => el('span', null, row.name, ' ', stateOf(row)) },
          { name: 'words', label: 'When', cell: (row) => el('span', { title: row.cron }, row.words) },
          { name: 'topic', label: 'Sends', by: (row) => row.eventType, cell: (row) => link(topicLink(row.eventType), row.eventType) },
          when('last', 'Last'),
          { name: 'next', label: 'Next', by: (row) => row.next[0] ?? Infinity, cell: (row) => nextOf(row) },
          number('fires', 'Fires'),
          { name: 'missed', label: 'Missed', class: 'num', by: (row) => row.missed, cell: (row) => (row.missed > 0 ? badge('bad', row.missed >= 100 ? '100 or more' : count(row.missed)) : '0') },
          { name: 'acts', label: '', cell: (row) => el('span', { class: 'bar' },
            press('Run now', why, () => run(row), () => void again()),
            row.enabled ? press('Pause', why, () => send('POST', path(row, 'pause')), () => void again()) : press('Resume', why, () => send('POST', path(row, 'resume')), () => void again(), 'small primary')) },
        ],
      });
      const more = remark('There are more schedules: GET /schedules lists all of them.');
      const none = teach('No schedules', 'A schedule sends an event by the clock. A program brings it with its session; if several sessions have the same schedule, only one of them fires it.',
        snippet(TEACH), snippet('millrace events schedules --store sqlite:///FILE'));
      fill(root, head(title('Schedules')), panel(list.box, more, none));
      const again = poll(signal, 2000, async () => {
        const found = /** @type {{ rows: Schedule[], more: boolean }} */ (await pages('/schedules', 'schedules', { signal }));
        list.show(found.rows, none);
        more.hidden = !found.more;
      });
    },
  };
}

/** @param {Schedule} row */
function stateOf(row) {
  if (row.runAskedAt) return badge('accent', 'run asked for', 'A session that has it makes the fire.');
  if (!row.enabled) return badge('warn', 'paused');
  return row.overdueSince ? badge('bad', 'overdue', 'No session with this schedule runs, or it lags.') : '';
}

/** @param {Schedule} row */
function nextOf(row) {
  const [first, ...rest] = row.next;
  if (first === undefined) return faint('–');
  return el('details', null, el('summary', null, countdown(first)), el('ul', null, [first, ...rest].map((at) => el('li', { class: 'nowrap' }, moment(at)))));
}
