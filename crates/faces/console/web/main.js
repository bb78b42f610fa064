// The beginning: who is looking, which page, and the door when a token is needed.

import { door, errorText, get, Problem, setToken } from './api.js';
import { ask, closeDrawer, field } from './parts/dialog.js';
import { el, fill, link, muted } from './parts/dom.js';
import { icon } from './parts/icons.js';
import { keyboard, look, shell } from './shell.js';
import { on, state, tell } from './state.js';

/**
 * @typedef {{ root: HTMLElement, names: string[], query: URLSearchParams, signal: AbortSignal,
 *   set: (changes: Record<string, string | null>, quiet?: boolean) => void }} Context
 * @typedef {{ title: string, open: (context: Context) => void | Promise<void>, change?: (query: URLSearchParams) => boolean }} Page
 */

/** Pages by the first part of the address; each is loaded when it is first opened. @type {Record<string, () => Promise<{ page: (names: string[]) => Page }>>} */
const PAGES = {
  overview: () => import('./pages/overview.js'),
  topics: () => import('./pages/topics.js'),
  topic: () => import('./pages/topic.js'),
  group: () => import('./pages/group.js'),
  jobs: () => import('./pages/jobs.js'),
  letters: () => import('./pages/letters.js'),
  trace: () => import('./pages/trace.js'),
  event: () => import('./pages/find.js'),
  handlers: () => import('./pages/handlers.js'),
  sessions: () => import('./pages/sessions.js'),
  schedules: () => import('./pages/schedules.js'),
  waiting: () => import('./pages/waiting.js'),
  server: () => import('./pages/server.js'),
  capabilities: () => import('./pages/capabilities.js'),
  access: () => import('./pages/access.js'),
  settings: () => import('./pages/settings.js'),
};

/** @type {AbortController | null} */
let current = null;
let shownPath = '';
/** @type {Page | null} */
let shown = null;

/** The address after `#`: a path and a query. */
function place() {
  const text = location.hash.replace(/^#/, '') || '/';
  const [path = '/', query = ''] = text.split('?', 2);
  return { path, names: path.split('/').filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

/** @param {string[]} names */
function pageOf(names) {
  if (names[0] === 'topics' && names[2] === 'groups' && names[3]) return 'group';
  if (names[0] === 'topics' && names[1]) return 'topic';
  return names[0] ?? 'overview';
}

async function route() {
  const { path, names, query } = place();
  // Only the query has changed: the page may know what to do.
  if (path === shownPath && shown?.change?.(query)) return;
  current?.abort();
  closeDrawer();
  const controller = new AbortController();
  current = controller;
  const main = document.getElementById('main');
  if (!main) return;
  const name = pageOf(names);
  tell('route');
  const load = PAGES[name];
  if (!load) {
    fill(main, el('div', { class: 'page' }, el('h1', null, 'There is no such page'), el('p', null, link('#/', 'Go to the overview'))));
    return;
  }
  try {
    const page = (await load()).page(names);
    if (controller.signal.aborted) return;
    shown = page;
    shownPath = path;
    document.title = `${page.title} · Millrace`;
    const root = el('div', { class: 'page' });
    fill(main, root);
    main.scrollTop = 0;
    await page.open({ root, names, query, signal: controller.signal, set });
  } catch (error) {
    if (controller.signal.aborted) return;
    fill(main, el('div', { class: 'page' }, trouble(error)));
  }
}

/** @param {unknown} error */
function trouble(error) {
  const text = errorText(error);
  const again = el('button', { type: 'button', class: 'btn', onclick: () => { shownPath = ''; void route(); } }, 'Try again');
  const back = on('link', () => {
    if (state.link !== 'connected') return;
    back();
    shownPath = '';
    void route();
  });
  return el('div', { class: 'banner bad', role: 'alert' }, icon('bad'), el('span', { class: 'grow' }, text), again);
}

/** Changes the query of the address. `quiet`: without a step for the back button. @param {Record<string, string | null>} changes @param {boolean} [quiet] */
function set(changes, quiet = true) {
  const { path, query } = place();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '') query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString().replaceAll('%3A', ':').replaceAll('%2C', ',');
  const to = `#${path}${text ? `?${text}` : ''}`;
  if (to === location.hash) return;
  if (quiet) history.replaceState(null, '', to);
  else location.hash = to;
}

/** @type {Promise<void> | null} */
let asking = null;

door.ask = (why) => {
  asking ??= askToken(why).finally(() => (asking = null));
  return asking;
};

/** @param {string} why */
async function askToken(why) {
  const token = el('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', required: true });
  const remember = el('input', { type: 'checkbox' });
  await ask({
    title: 'This server wants a token',
    act: 'Sign in',
    stays: true,
    body: [
      muted(why, '. Paste a token of this server (--first-token FILE writes one).'),
      field('Token', token, 'Kept in this tab, and sent with every request.'),
      el('label', { class: 'check' }, remember, 'Remember it on this device'),
    ],
    done: async () => {
      if (!token.value) throw new Error('Paste a token.');
      const response = await fetch(new URL('../whoami', document.baseURI), { headers: { authorization: `Bearer ${token.value}` }, cache: 'no-store' });
      if (!response.ok) throw new Error('The server does not accept this token.');
      setToken(token.value, remember.checked);
    },
  });
  await meet();
}

/** Learns who is looking; a token for other namespaces than the one that is shown leads to its own. */
async function meet() {
  const before = Date.now();
  state.who = await get('/whoami', { bare: true });
  if (!state.who) return;
  state.skew = state.who.now - (before + Date.now()) / 2;
  const names = state.who.namespaces;
  if (!names.includes('*') && !names.includes(state.namespace)) state.namespace = names[0] ?? 'default';
  tell('who');
}

async function begin() {
  look();
  const app = document.getElementById('app');
  if (!app) return;
  shell(app);
  keyboard();
  window.addEventListener('hashchange', () => void route());
  on('namespace', () => {
    shownPath = '';
    void route();
  });
  on('redraw', () => {
    shownPath = '';
    void route();
  });
  for (;;) {
    try {
      await meet();
      break;
    } catch (error) {
      const main = document.getElementById('main');
      if (main) fill(main, el('div', { class: 'page' }, el('div', { class: 'banner bad', role: 'alert' }, icon('bad'), errorText(error))));
      if (error instanceof Problem && error.status === 401) continue;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  await route();
}

void begin();
