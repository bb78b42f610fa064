// Every setting of the server: value, source, bound, and what makes a change count.

import { get } from '../api.js';
import { banner } from '../parts/banner.js';
import { badge, card, el, faint, fill, head, link, muted, panel, remark, title } from '../parts/dom.js';
import { poll } from '../parts/poll.js';
import { table } from '../parts/table.js';
import { time } from '../parts/time.js';
import { missing } from '../state.js';

/** @typedef {import('../types.js').Settings} Settings */
/** @typedef {Settings['settings'][number]} Setting */
/** @typedef {Settings['tokens'][number]} Token */
/** @typedef {Settings['capabilities'][number]} Entry */

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Settings',
    async open({ root, query, signal, set }) {
      const why = missing('admin');
      const top = head(title('Settings'));
      if (why !== null) {
        fill(root, top, banner('', 'key', `The settings: ${why}.`));
        return;
      }
      const search = el('input', { type: 'search', placeholder: 'Find a setting', 'aria-label': 'Find a setting', value: query.get('q') ?? '' });
      const set_ = el('input', { type: 'checkbox', checked: query.get('set') === '1' });
      const list = settingTable();
      const none = remark('No such setting.');
      const tokens = tokenTable();
      const open = remark('There are no tokens: whoever reaches this server may do everything.');
      const entries = entryTable();
      const entriesCard = el('section', { class: 'card', hidden: true }, el('div', { class: 'title' }, el('h2', null, 'Capabilities of the configuration')), entries.box);
      /** @type {Settings | null} */
      let doc = null;
      const draw = () => {
        if (!doc) return;
        const text = search.value.trim().toLowerCase();
        const found = doc.settings.filter((one) => (!set_.checked || one.from !== 'default') && `${one.name} ${one.about} ${shown(one.value)}`.toLowerCase().includes(text));
        list.show(found, none);
        tokens.show(doc.tokens, open);
        entries.show(doc.capabilities);
        entriesCard.hidden = doc.capabilities.length === 0;
      };
      search.addEventListener('input', () => {
        set({ q: search.value });
        draw();
      });
      set_.addEventListener('change', () => {
        set({ set: set_.checked ? '1' : null });
        draw();
      });
      fill(root, top,
        muted('Flags beat the environment, which beats the file. A setting such as frame-bytes-max is the flag --frame-bytes-max, the variable MILLRACE_FRAME_BYTES_MAX and the key frame_bytes_max.'),
        panel(el('div', { class: 'title' }, el('h2', { class: 'grow' }, 'Settings'), el('div', { class: 'bar' }, search, el('label', { class: 'check' }, set_, 'Only those that are set'))), list.box, none),
        card('Tokens and certificates', tokens.box, open),
        entriesCard);
      poll(signal, 30_000, async () => {
        doc = /** @type {Settings} */ (await get('/settings', { signal, bare: true }));
        draw();
      });
    },
    change: () => true,
  };
}

/** @param {unknown} value */
const shown = (value) => (Array.isArray(value) ? value.join(', ') : value === '' ? '' : String(value));

function settingTable() {
  return table({
    caption: 'Settings of the server',
    sort: 'name',
    key: (/** @type {Setting} */ row) => row.name,
    columns: [
      { name: 'name', label: 'Setting', by: (row) => row.name, cell: (row) => el('span', { title: row.about }, el('code', null, row.name)) },
      { name: 'value', label: 'Value', cell: (row) => el('span', { class: 'mono' }, shown(row.value) || '–') },
      { name: 'from', label: 'From', by: (row) => row.from, cell: (row) => (row.from === 'default' ? faint('default') : el('span', null, row.from, faint(` (default ${shown(row.default) || 'empty'})`))) },
      { name: 'accepts', label: 'May be', cell: (row) => faint(row.accepts) },
      { name: 'changes', label: 'Changes with', by: (row) => row.changes, cell: (row) => badge(row.changes === 'SIGHUP' ? 'accent' : '', row.changes) },
      { name: 'about', label: 'What for', cell: (row) => row.about },
    ],
  });
}

function tokenTable() {
  return table({
    caption: 'Tokens and certificates, by agent',
    sort: 'agent',
    columns: [
      { name: 'agent', label: 'Agent', by: (/** @type {Token} */ row) => row.agent, cell: (row) => row.agent },
      { name: 'kind', label: 'Shows', cell: (row) => (row.certificate ? `certificate ${row.certificate}` : 'a token') },
      { name: 'scopes', label: 'May', cell: (row) => row.scopes.join(', ') || 'nothing' },
      { name: 'namespaces', label: 'Where', cell: (row) => (row.namespaces.includes('*') ? 'everywhere' : row.namespaces.join(', ')) },
      { name: 'roles', label: 'Roles', cell: (row) => row.roles.join(', ') || '–' },
      { name: 'expires', label: 'Until', by: (row) => row.expires ?? Infinity, cell: (row) => (row.expires == null ? 'for ever' : row.expired ? badge('bad', 'expired') : time(row.expires)) },
      { name: 'rate', label: 'Rate', class: 'num', cell: (row) => (row.ratePerSecond == null ? '–' : row.ratePerSecond === 0 ? 'no limit' : `${row.ratePerSecond} /s`) },
    ],
  });
}

function entryTable() {
  return table({
    caption: 'Child processes of the configuration',
    columns: [
      { name: 'name', label: 'Name', cell: (/** @type {Entry} */ row) => link(`#/capabilities?c=${encodeURIComponent(row.name)}`, row.name) },
      { name: 'program', label: 'Program', class: 'mono', cell: (row) => row.program },
      { name: 'restart', label: 'When it ends', cell: (row) => (row.restart ? 'is started again' : 'stays away') },
      { name: 'env', label: 'Variables', class: 'mono', cell: (row) => row.env.join(', ') || '–' },
    ],
  });
}
