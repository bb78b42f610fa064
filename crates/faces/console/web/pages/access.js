// The page Access: connections, refusals, and acts of administrators.

import { NDJSON, Problem, get, lines, part, send } from '../api.js';
import { banner } from '../parts/banner.js';
import { ask, toast } from '../parts/dialog.js';
import { badge, card, el, fill, head, muted, panel, remark, title } from '../parts/dom.js';
import { poll } from '../parts/poll.js';
import { number, table, when } from '../parts/table.js';
import { count, size, time } from '../parts/time.js';
import { missing, state } from '../state.js';

/** @typedef {import('../types.js').Connection} Connection */
/** @typedef {{ kind: string, ts: number, agent?: string, peer?: string, namespace?: string, topic?: string, group?: string, code?: string, what?: string, why?: string, events?: number }} Record */

/** @type {{ [door: string]: string }} */
const DOORS = { ws: 'the bus', os: 'the loop', socket: 'the Unix socket' };
const AUDIT = '/topics/system.bus.audit/events';

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Access',
    async open({ root, signal }) {
      const why = missing('admin');
      const top = head(title('Access'));
      if (why !== null) {
        fill(root, top, banner('', 'key', `Who is connected, and the audit: ${why}.`));
        return;
      }
      const here = el('input', { type: 'checkbox' });
      const list = connections((row) => void disconnect(row, () => void again()));
      const nobody = remark('Nobody is connected. Requests over HTTP and members inside the server, such as those of the demo, are no connections.');
      const more = remark('There are more connections than are listed here.');
      const audit = records();
      const teach = el('p', { class: 'body', hidden: true }, 'Refusals and administrative acts are written to the topic system.bus.audit if the server is started with ', el('code', null, '--audit refusals,admin'), '.');
      fill(root, top,
        panel(el('div', { class: 'title' }, el('h2', { class: 'grow' }, 'Connections'), el('label', { class: 'check' }, here, `Only namespace ${state.namespace}`)), list.box, nobody, more),
        card('Refusals and administrative acts', audit.box, teach));
      const again = poll(signal, 2000, async () => {
        const found = /** @type {import('../types.js').ConnectionList} */ (await get('/connections', { signal, bare: true, query: here.checked ? { namespace: state.namespace } : {} }));
        list.show(found.connections, nobody);
        more.hidden = !found.next;
      });
      void get('/settings', { signal, bare: true }).then((/** @type {import('../types.js').Settings} */ { settings }) => {
        const kinds = settings.find((one) => one.name === 'audit')?.value;
        if (Array.isArray(kinds) && kinds.length > 0) fill(teach, 'Nothing was refused and nothing administered yet.');
      }, () => {});
      here.addEventListener('change', () => void again());
      poll(signal, 5000, async () => {
        const found = await recorded(signal);
        audit.show(found, teach);
      });
    },
  };
}

/** The newest records of the audit. It is a topic of the namespace `default`. @param {AbortSignal} signal @returns {Promise<Record[]>} */
async function recorded(signal) {
  try {
    const { lines: found } = await lines(AUDIT, { signal, bare: true, accept: NDJSON, query: { namespace: 'default', order: 'desc', limit: 100 } });
    return found.map((line) => JSON.parse(line).payload).filter((payload) => typeof payload?.kind === 'string');
  } catch (error) {
    // A token that is not for that namespace.
    if (error instanceof Problem && [403, 404].includes(error.status)) return [];
    throw error;
  }
}

/** @param {(row: Connection) => void} close */
function connections(close) {
  return table({
    caption: 'Connections',
    sort: 'since',
    key: (/** @type {Connection} */ row) => row.id,
    columns: [
      { name: 'id', label: 'Connection', class: 'mono', by: (row) => row.id, cell: (row) => row.id },
      { name: 'agent', label: 'Agent', by: (row) => row.agent ?? '', cell: (row) => row.agent ?? '–' },
      { name: 'peer', label: 'From', class: 'mono', by: (row) => row.peer ?? '', cell: (row) => row.peer ?? 'this machine' },
      { name: 'door', label: 'Talks to', by: (row) => row.door, cell: (row) => `${DOORS[row.door] ?? row.door}${row.namespace ? `, ${row.namespace}` : ''}` },
      when('since', 'Since'),
      number('subscriptions', 'Subscriptions'),
      number('inflight', 'In flight'),
      { name: 'unread', label: 'Unread', class: 'num', by: (row) => row.unreadBytes, cell: (row) => (row.congested ? badge('bad', size(row.unreadBytes), 'It does not read: nothing more is sent to it') : size(row.unreadBytes)) },
      { name: 'act', label: '', cell: (row) => el('button', { type: 'button', class: 'btn small danger', 'aria-label': `Disconnect ${row.id}`, onclick: () => close(row) }, 'Disconnect…') },
    ],
  });
}

function records() {
  return table({
    caption: 'Refusals and administrative acts, the newest first',
    columns: [
      { name: 'ts', label: 'Time', cell: (/** @type {Record} */ row) => time(row.ts) },
      { name: 'kind', label: 'What', cell: (row) => badge(row.kind === 'refused' ? 'bad' : '', row.code ?? row.kind.replaceAll('_', ' ')) },
      { name: 'agent', label: 'Agent', cell: (row) => row.agent ?? '–' },
      { name: 'peer', label: 'From', class: 'mono', cell: (row) => row.peer ?? '–' },
      { name: 'about', label: 'About', cell: (row) => [row.what, row.topic, row.group].filter(Boolean).join(' · ') || '–' },
      { name: 'why', label: 'Why', cell: (row) => row.why ?? '' },
    ],
  });
}

/** @param {Connection} row @param {() => void} again */
async function disconnect(row, again) {
  await ask({
    title: `Disconnect ${row.id}?`,
    act: 'Disconnect',
    danger: true,
    body: [
      el('p', null, `${row.agent ?? row.peer ?? 'The client'} has ${count(row.subscriptions)} subscriptions and holds ${count(row.inflight)} ${row.door === 'ws' ? 'events, which go to others without counting an attempt' : 'messages, which are carried out without an answer'}.`),
      muted('Its client may connect again at once. To keep it out, take its token out of the configuration and reload.'),
    ],
    done: async () => {
      await send('DELETE', `/connections/${part(row.id)}`, undefined, { bare: true });
      toast(`${row.id} is disconnected.`);
    },
  });
  again();
}
