// Programs that run durable handlers: which are alive, and what they hold.

import { part } from '../api.js';
import { snippet } from '../parts/dialog.js';
import { badge, el, fill, head, panel, remark, teach, title } from '../parts/dom.js';
import { pages } from '../parts/pages.js';
import { poll } from '../parts/poll.js';
import { table } from '../parts/table.js';
import { count, time } from '../parts/time.js';

/** @typedef {import('../types.js').Session} Session */

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Sessions',
    async open({ root, query, signal }) {
      const on = query.get('s');
      const tones = /** @type {Record<string, string>} */ ({ alive: 'good', dead: 'bad', stopped: '' });
      const list = table({
        caption: 'Sessions, the newest first',
        key: (/** @type {Session} */ row) => row.session,
        isOn: (row) => row.session === on,
        columns: [
          { name: 'session', label: 'Session', class: 'mono', cell: (row) => row.session },
          { name: 'state', label: 'State', cell: (row) => el('span', null, badge(tones[row.state] ?? '', row.state), row.hanging.length > 0 ? badge('bad', `${count(row.hanging.length)} hanging`, row.hanging.map((run) => `${run.handler}: ${run.event}`).join(', ')) : '') },
          { name: 'host', label: 'Host', cell: (row) => row.host ?? '–' },
          { name: 'pid', label: 'Process', class: 'num', cell: (row) => row.pid ?? '–' },
          { name: 'started', label: 'Since', cell: (row) => time(row.started) },
          { name: 'heartbeat', label: 'Last sign of life', cell: (row) => time(row.heartbeat) },
          { name: 'holds', label: 'Holds', cell: (row) => el('span', { class: 'lags' }, Object.entries(row.holds).map(([handler, events]) => el('a', { class: 'badge accent', href: `#/handlers/${part(handler)}?state=claimed` }, `${handler} ${count(events)}`))) },
          { name: 'runs', label: 'Runs', class: 'num', cell: (row) => el('span', { title: Object.entries(row.runs).map(([how, runs]) => `${how.replaceAll('_', ' ')}: ${count(runs)}`).join(', ') }, `${count(row.runs['succeeded'] ?? 0)} done, ${count(row.runs['failed'] ?? 0)} failed`) },
          { name: 'more', label: 'Says', cell: (row) => Object.entries(row.metadata).map(([name, value]) => `${name}: ${value}`).join(', ') },
        ],
      });
      const more = remark('There are more sessions: GET /sessions lists all of them.');
      const none = teach('No sessions', 'A session is a program with durable handlers that has this store open. It shows itself here when it begins to work.',
        snippet('let session = Session::builder("sqlite:///app.db").metadata("version", "1.4.2").open()?;'), snippet('millrace events sessions --store sqlite:///FILE'));
      fill(root, head(title('Sessions')), panel(list.box, more, none));
      poll(signal, 2000, async () => {
        const found = /** @type {{ rows: Session[], more: boolean }} */ (await pages('/sessions', 'sessions', { signal }));
        list.show(found.rows, none);
        more.hidden = !found.more;
      });
    },
  };
}
