// The page Capabilities of the CQRS loop: their health, their mailboxes, a form to try a message.

import { call, errorText, get, send } from '../api.js';
import { banner } from '../parts/banner.js';
import { ask, closeDrawer, drawer, field, toast } from '../parts/dialog.js';
import { badge, barred, button, el, fact, fill, head, muted, panel, title } from '../parts/dom.js';
import { members, tree } from '../parts/json.js';
import { poll } from '../parts/poll.js';
import { number, table, when } from '../parts/table.js';
import { count, span, time } from '../parts/time.js';
import { may, missing, state } from '../state.js';

/** @typedef {import('../types.js').Capability} Capability */
/** @typedef {Capability['handles'][number]} Handled */

/** @type {Record<string, string>} */
const TONES = { healthy: 'good', unhealthy: 'bad', leaving: 'warn' };

/** @returns {import('../main.js').Page} */
export function page() {
  /** @type {Capability[]} */
  let known = [];
  return {
    title: 'Capabilities',
    async open({ root, query, signal, set }) {
      const show = (/** @type {string} */ name) => {
        const one = known.find((capability) => capability.name === name);
        if (one) inspect(one, () => set({ c: null }));
      };
      const list = table({
        caption: 'Capabilities of the loop',
        sort: 'name',
        key: (/** @type {Capability} */ row) => row.name,
        open: (row) => {
          set({ c: row.name });
          show(row.name);
        },
        columns: [
          { name: 'name', label: 'Name', by: (row) => row.name, cell: (row) => el('button', { type: 'button', class: 'linkish', onclick: () => { set({ c: row.name }); show(row.name); } }, row.name) },
          { name: 'kind', label: 'Kind', by: (row) => row.kind, cell: (row) => row.kind },
          { name: 'health', label: 'Health', by: (row) => row.health, cell: (row) => badge(TONES[row.health] ?? '', row.health, row.reason ?? null) },
          number('mailbox', 'Mailbox'),
          number('owes', 'Answers it owes'),
          number('asked', 'Answers it awaits'),
          { name: 'restarts', label: 'Restarts', class: 'num', by: (row) => row.restarts, cell: (row) => (row.restarts > 0 ? badge('warn', count(row.restarts)) : '0') },
          when('since', 'Since'),
          { name: 'pid', label: 'Process', class: 'num', cell: (row) => row.pid ?? '–' },
        ],
      });
      if (missing('os') && missing('inspect')) {
        fill(root, head(title('Capabilities')), banner('', 'key', 'The capabilities: your token has neither the scope os nor inspect.'));
        return;
      }
      const reasons = el('ul', { class: 'notes' });
      const why = missing('admin') ?? missing('os');
      const reload = button('btn', 'Reload…', () => void reloadAll(() => void again()), barred(why));
      fill(root,
        head(title('Capabilities'), el('div', { class: 'acts' }, reload)),
        el('section', { class: 'card', hidden: true }, el('div', { class: 'title' }, el('h2', null, 'Unhealthy')), reasons),
        panel(list.box));
      let first = true;
      const again = poll(signal, 5000, async () => {
        const found = /** @type {import('../types.js').CapabilityList} */ (await get('/capabilities', { signal, bare: true }));
        known = found.capabilities;
        list.show(known);
        const ill = known.filter((one) => one.health === 'unhealthy');
        fill(reasons, ill.map((one) => el('li', null, el('span', null, el('strong', null, one.name), `: ${one.reason ?? 'the reason is withheld from your token'}`))));
        if (reasons.parentElement) reasons.parentElement.hidden = ill.length === 0;
        if (first && query.get('c')) show(query.get('c') ?? '');
        first = false;
      });
    },
    change(query) {
      if (!query.get('c')) closeDrawer();
      return known.length > 0 && !query.get('c');
    },
  };
}

/** @param {Capability} one @param {() => void} end */
function inspect(one, end) {
  const list = (/** @type {string[]} */ names) => (names.length === 0 ? 'nothing' : names.join(', '));
  drawer(one.name, [], [
    el('p', null, one.description),
    el('dl', { class: 'facts' },
      fact('Kind', one.kind), fact('Health', badge(TONES[one.health] ?? '', one.health)),
      one.reason ? fact('Reason', one.reason) : [],
      fact('Since', time(one.since)), fact('Up', span(Math.max(0, Date.now() + state.skew - one.since))),
      fact('Events of the loop', list(one.subscribes)),
      fact('Topics it reads', list(one.topics.map((fed) => `${fed.topic} as ${fed.group}`)))),
    el('h3', null, 'Takes'),
    one.handles.length === 0 ? muted('No requests.') : '',
    ...one.handles.map(handled),
  ], end);
}

/** @param {Handled} of */
function handled(of) {
  const why = missing('os');
  const press = el('button', { type: 'button', class: 'btn small', disabled: why !== null || of.kind === 'reply' || of.kind === 'error', title: why, onclick: () => void attempt(of) }, 'Try it…');
  const schema = (/** @type {string} */ name, /** @type {unknown} */ document) =>
    el('details', null, el('summary', null, name), tree(JSON.stringify(document), 2, `${name} of ${of.type}`));
  return panel(
    el('div', { class: 'title' }, el('h4', { class: 'grow' }, `${of.type} `, badge('', of.kind)), press),
    el('div', { class: 'body stack' }, of.description ? el('p', null, of.description) : '', schema('Data', of.input), schema('Reply', of.output)));
}

/** @typedef {{ type?: string, enum?: unknown[], properties?: Record<string, Schema>, required?: string[], description?: string, default?: unknown }} Schema */

/** A field for each plain member of the schema; else one for the whole data. @param {unknown} input */
function formOf(input) {
  const schema = /** @type {Schema} */ (typeof input === 'object' && input !== null ? input : {});
  const members = Object.entries(schema.properties ?? {});
  const plain = members.length > 0 && members.every(([, of]) => ['string', 'number', 'integer', 'boolean'].includes(of.type ?? '') || Array.isArray(of.enum));
  if (!plain) {
    const text = el('textarea', { rows: 8, spellcheck: 'false' });
    text.value = members.length > 0 ? `{\n${members.filter(([name]) => schema.required?.includes(name)).map(([name]) => `  ${JSON.stringify(name)}: null`).join(',\n')}\n}` : '{}';
    return { body: field('Data: any JSON', text, schema.description), read: () => text.value };
  }
  const controls = members.map(([name, of]) => {
    const control = Array.isArray(of.enum) ? el('select', null, of.enum.map((value) => el('option', null, JSON.stringify(value))))
      : of.type === 'boolean' ? el('select', null, ['', 'true', 'false'].map((value) => el('option', null, value)))
        : el('input', { type: 'text', spellcheck: 'false' });
    const must = schema.required?.includes(name) ?? false;
    return { name, of, must, control, box: field(`${name}${must ? '' : ' (may be left out)'}`, control, of.description) };
  });
  const read = () => {
    const parts = controls.filter(({ control, must }) => must || control.value !== '').map(({ name, of, control }) => {
      const isText = of.type === 'string' && !Array.isArray(of.enum);
      if (!isText && control.value.trim() === '') throw new Error(`Give a value for ${name}.`);
      return `${JSON.stringify(name)}:${isText ? JSON.stringify(control.value) : control.value}`;
    });
    return `{${parts.join(',')}}`;
  };
  return { body: el('div', { class: 'fields' }, controls.map(({ box }) => box)), read };
}

/** Sends messages and shows the outcome of each. @param {Handled} of */
async function attempt(of) {
  const { body, read } = formOf(of.input);
  const outcome = el('div', { class: 'stack', role: 'status' });
  const told = (/** @type {string} */ tone, /** @type {string} */ text, /** @type {Node | string} */ more = '') => fill(outcome, el('p', { class: `banner ${tone}` }, text), more);
  const go = el('button', { type: 'button', class: 'btn primary' }, 'Send');
  go.addEventListener('click', async () => {
    go.disabled = true;
    fill(outcome);
    try {
      const text = messageOf(of, read());
      const response = await call('/os/messages', { method: 'POST', body: text, bare: true });
      // The answer is shown as it was written, not as this browser would write it.
      const parts = new Map(members(await response.text()).map(({ name, raw }) => [name, raw]));
      const data = parts.get('"data"') ?? 'null';
      if (response.status === 202) told('calm', 'It was taken. Events have no outcome.');
      else if (parts.get('"kind"') === '"error"') told('bad', 'The outcome is an error:', tree(data, 3, 'Outcome'));
      else told('calm', 'The reply:', tree(data, 3, 'Outcome'));
    } catch (error) {
      told('bad', errorText(error));
    } finally {
      go.disabled = false;
    }
  });
  await ask({
    title: `${of.type}, a ${of.kind}`,
    act: 'Close',
    wide: true,
    stays: true,
    body: [of.description ? muted(of.description) : '', body, el('div', null, go), outcome],
    done: async () => {},
  });
}

/** The message as text: data is sent as it was written. @param {Handled} of @param {string} data */
function messageOf(of, data) {
  try {
    JSON.parse(data);
  } catch (error) {
    throw new Error(`The data is no JSON: ${error instanceof Error ? error.message : error}`);
  }
  const id = `console-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`;
  return `{"kind":${JSON.stringify(of.kind)},"type":${JSON.stringify(of.type)},"data":${data},"metadata":{"id":"${id}","timestamp":${Date.now()}}}`;
}

/** @param {() => void} again */
async function reloadAll(again) {
  await ask({
    title: 'Reload the configuration?',
    act: 'Reload',
    body: [el('p', null, 'Tokens, certificate and capabilities are read again. Capabilities that changed, and those that are unhealthy, are started anew; messages in hand are finished first.')],
    done: async () => {
      const message = { kind: 'command', type: 'Syscall.Reload', data: {}, metadata: { id: `console-${Date.now()}`, timestamp: Date.now() } };
      const told = /** @type {any} */ (await send('POST', '/os/messages', message, { bare: true }));
      if (told?.kind === 'error') throw new Error(told.data.message);
      toast(told?.data?.message ?? 'Reloaded.');
      if (may('os')) again();
    },
  });
}
