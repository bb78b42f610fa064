// The frame: rail, search, switches, keys.

import { get, part } from './api.js';
import { ask, leaveDrawer } from './parts/dialog.js';
import { el, fact, fill } from './parts/dom.js';
import { icon, mark } from './parts/icons.js';
import { keep, on, state, tell } from './state.js';

/** Pages in the rail, in parts. @type {[string, [string, string, string, string][]][]} */
const RAIL = [
  ['Bus', [
    ['#/', 'Overview', 'overview', 'o'],
    ['#/topics', 'Topics', 'topics', 't'],
    ['#/letters', 'Dead letters', 'letters', 'd'],
    ['#/jobs', 'Jobs', 'jobs', 'j'],
    ['#/trace', 'Trace', 'trace', 'r'],
  ]],
  ['Work', [
    ['#/handlers', 'Handlers', 'handlers', 'h'],
    ['#/sessions', 'Sessions', 'sessions', 's'],
    ['#/schedules', 'Schedules', 'schedules', 'c'],
    ['#/waiting', 'Waiting', 'waiting', 'w'],
  ]],
  ['Server', [
    ['#/server', 'Server', 'server', 'v'],
    ['#/capabilities', 'Capabilities', 'capabilities', 'b'],
    ['#/access', 'Access', 'key', 'a'],
    ['#/settings', 'Settings', 'settings', 'e'],
  ]],
];

/** Theme and density, before anything is drawn. */
export function look() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    const is = state.theme === 'dark' || (state.theme === 'system' && dark.matches);
    document.documentElement.classList.toggle('dark', is);
    document.documentElement.classList.toggle('compact', state.density === 'compact');
  };
  dark.addEventListener('change', apply);
  on('theme', apply);
  apply();
}

/** @param {HTMLElement} app */
export function shell(app) {
  const main = el('main', { id: 'main', tabindex: '-1' });
  fill(app, rail(), top(), main);
}

function rail() {
  const foot = el('p', { class: 'foot' });
  const lists = RAIL.map(([title, pages]) => {
    const items = pages.map(([href, label, sign]) => el('li', null, el('a', { href }, icon(sign), el('span', null, label))));
    return el('section', null, el('p', { class: 'label' }, title), el('ul', null, items));
  });
  const nav = el('nav', { class: 'rail', 'aria-label': 'Pages' }, el('a', { class: 'brand', href: '#/' }, mark(), 'Millrace'), lists, foot);
  const light = () => {
    const at = location.hash.split('?')[0] || '#/';
    for (const link of nav.querySelectorAll('li a')) {
      const href = link.getAttribute('href') ?? '';
      const is = href === '#/' ? ['#/', '#/overview', ''].includes(at) : at.startsWith(href);
      if (is) {
        link.setAttribute('aria-current', 'page');
        link.scrollIntoView({ inline: 'center', block: 'nearest' });
      } else link.removeAttribute('aria-current');
    }
  };
  on('route', light);
  on('who', () => fill(foot, state.who ? `Millrace ${state.who.version}` : ''));
  light();
  return nav;
}

function top() {
  const search = el('input', { type: 'search', id: 'search', placeholder: 'Find a topic, a group, an event id', 'aria-label': 'Find a topic, a group or an event by its id' });
  const form = el('form', { class: 'search', role: 'search', onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void find(search.value.trim()); } }, icon('search'), search);
  return el('header', { class: 'top' }, namespaces(), form, el('div', { class: 'right' }, link(), pause(), clock(), theme(), who()));
}

function namespaces() {
  const choice = el('select', { 'aria-label': 'Namespace' });
  const draw = (/** @type {string[]} */ names) => {
    const all = names.includes(state.namespace) ? names : [state.namespace, ...names];
    fill(choice, all.map((name) => el('option', { selected: name === state.namespace }, name)));
  };
  draw([state.namespace]);
  choice.addEventListener('change', () => {
    state.namespace = choice.value;
    keep('namespace', choice.value);
    tell('namespace');
  });
  on('who', async () => {
    const list = /** @type {import('./types.js').NamespaceList} */ (await get('/namespaces', { bare: true }));
    draw(list.namespaces.map((one) => one.namespace));
  });
  return choice;
}

function link() {
  const dot = el('span', { class: 'dot' });
  const word = el('span', { class: 'word' });
  const draw = () => {
    dot.className = `dot ${state.paused ? 'warn' : state.link === 'connected' ? 'good' : state.link === 'away' ? 'bad' : ''}`;
    fill(word, state.paused ? 'paused' : state.link === 'away' ? 'server away' : state.link);
  };
  on('link', draw);
  on('paused', draw);
  draw();
  return el('span', { class: 'link-state', role: 'status', id: 'link' }, dot, word);
}

function pause() {
  const press = el('button', { type: 'button', class: 'btn icon' });
  const draw = () => {
    const label = state.paused ? 'Go on asking the server (p)' : 'Stop asking the server (p)';
    press.setAttribute('aria-label', label);
    press.title = label;
    fill(press, icon(state.paused ? 'play' : 'pause'));
  };
  press.addEventListener('click', flip);
  on('paused', draw);
  draw();
  return press;
}

function flip() {
  state.paused = !state.paused;
  tell('paused');
}

/** A button that goes round through choices. @param {'clock' | 'theme'} name @param {string[]} choices @param {(value: string) => string} sign @param {string} what @param {string} then */
function round(name, choices, sign, what, then) {
  const press = el('button', { type: 'button', class: 'btn icon' });
  const draw = () => {
    const label = `${what}: ${state[name]}`;
    press.setAttribute('aria-label', label);
    press.title = label;
    fill(press, icon(sign(state[name])));
  };
  press.addEventListener('click', () => {
    const next = choices[(choices.indexOf(state[name]) + 1) % choices.length] ?? choices[0] ?? '';
    state[name] = next;
    keep(name, next);
    draw();
    tell(then);
  });
  draw();
  return press;
}

const clock = () => round('clock', ['local', 'utc', 'relative'], () => 'clock', 'Times', 'redraw');
const theme = () => round('theme', ['system', 'light', 'dark'], (value) => (value === 'dark' ? 'moon' : 'sun'), 'Theme', 'theme');

function who() {
  const press = el('button', { type: 'button', class: 'btn icon', 'aria-label': 'Who am I' }, icon('person'));
  press.addEventListener('click', () => {
    const me = state.who;
    if (!me) return;
    const density = el('select', null, ['wide', 'compact'].map((name) => el('option', { selected: name === state.density }, name)));
    const keys = el('input', { type: 'checkbox', checked: state.keys });
    void ask({
      title: me.agent ?? (me.open ? 'Everybody' : 'Nobody'),
      act: 'Done',
      body: [
        el('dl', { class: 'facts' },
          fact('May', me.open ? 'everything: this server has no tokens' : me.scopes.join(', ')),
          fact('Namespaces', me.namespaces.join(', ')),
          fact('Server', `Millrace ${me.version}, up since ${new Date(me.startedAt).toISOString()}`)),
        el('label', { class: 'field' }, el('span', null, 'Rows'), density),
        el('label', { class: 'check' }, keys, 'Keyboard shortcuts'),
      ],
      done: async () => {
        state.density = density.value;
        state.keys = keys.checked;
        keep('density', density.value);
        keep('keys', keys.checked ? null : 'off');
        tell('theme');
      },
    });
  });
  return press;
}

/** @param {string} text */
async function find(text) {
  if (!text) return;
  location.hash = `#/event/${part(text)}`;
}

const HELP = [
  ['/', 'search'], ['g o', 'overview'], ['g t', 'topics'], ['g d', 'dead letters'], ['g j', 'jobs'], ['g r', 'trace'],
  ['g h', 'handlers'], ['g s', 'sessions'], ['g c', 'schedules'], ['g w', 'what waits'], ['g v', 'server'],
  ['g b', 'capabilities'], ['g a', 'access'], ['g e', 'settings'], ['j / k', 'next, previous row'],
  ['Enter', 'open the row'], ['Esc', 'close'], ['p', 'pause'], ['?', 'this list'],
];

/** Keys, but not in fields; they can be switched off. */
export function keyboard() {
  let go = false;
  document.addEventListener('keydown', (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === 'Escape' && !document.querySelector('dialog[open]')) leaveDrawer();
    if (!state.keys || event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, select, dialog')) return;
    const goes = go;
    go = false;
    if (goes) {
      const page = RAIL.flatMap(([, pages]) => pages).find(([, , , key]) => key === event.key);
      if (page) location.hash = page[0];
      return;
    }
    if (event.key === 'g') go = true;
    else if (event.key === '/') {
      event.preventDefault();
      document.getElementById('search')?.focus();
    } else if (event.key === 'p') flip();
    else if (event.key === '?') void ask({ title: 'Keyboard shortcuts', act: 'Close', tells: true, body: [el('dl', { class: 'facts' }, HELP.flatMap(([key, what]) => fact(el('code', null, key), what)))], done: async () => {} });
    else if (event.key === 'j' || event.key === 'k') step(event.key === 'j' ? 1 : -1);
    else if (event.key === 'Enter' && target.matches('tr.link')) target.click();
  });
}

/** @param {number} by */
function step(by) {
  const rows = [...document.querySelectorAll('main tr.link')];
  const at = rows.findIndex((row) => row === document.activeElement);
  const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
  if (next instanceof HTMLElement) {
    next.tabIndex = -1;
    next.focus();
    next.scrollIntoView({ block: 'nearest' });
  }
}
