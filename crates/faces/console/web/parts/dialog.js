// Dialogs, the drawer at the right, and short notes at the bottom.

import { button, copy, el, fill, link, say } from './dom.js';
import { icon } from './icons.js';

/**
 * Opens a dialog with a form. `done` may refuse by throwing; its message is shown and the dialog stays.
 * A dialog that `stays` cannot be left without its act; a dialog that only `tells` has no Cancel.
 * @param {{ title: string, wide?: boolean, body: (Node | string)[], act: string, danger?: boolean, done: () => Promise<void>, stays?: boolean, tells?: boolean }} spec
 * @returns {Promise<boolean>} whether it was done
 */
export function ask(spec) {
  return new Promise((resolve) => {
    const why = el('p', { class: 'banner bad', role: 'alert', hidden: true });
    const go = el('button', { class: spec.danger ? 'btn danger' : 'btn primary' }, spec.act);
    const form = el('form', { method: 'dialog', novalidate: true },
      el('h2', { id: 'dialog-title' }, spec.title), spec.body, why,
      el('div', { class: 'acts' }, spec.stays || spec.tells ? '' : button('btn', 'Cancel', () => close(false)), go));
    const box = el('dialog', { class: spec.wide ? 'wide' : null, 'aria-labelledby': 'dialog-title' }, form);
    const close = (/** @type {boolean} */ done) => {
      box.close();
      box.remove();
      resolve(done);
    };
    box.addEventListener('cancel', (event) => {
      event.preventDefault();
      if (!spec.stays) close(false);
    });
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      go.disabled = true;
      why.hidden = true;
      try {
        await spec.done();
        close(true);
      } catch (error) {
        fill(why, icon('bad'), error instanceof Error ? error.message : String(error));
        why.hidden = false;
      } finally {
        go.disabled = false;
      }
    });
    document.body.append(box);
    box.showModal();
  });
}

/** @param {string} label @param {HTMLElement} control @param {string} [hint] */
export function field(label, control, hint) {
  control.setAttribute('aria-label', label);
  return el('label', { class: 'field' }, el('span', null, label), control, hint ? el('span', { class: 'hint' }, hint) : '');
}

/** @type {{ box: HTMLElement, end: () => void } | null} */
let opened = null;

/**
 * The drawer; one at a time. `end` is told when it is closed by its user.
 * @param {string} title @param {(Node | string)[]} tools @param {(Node | string)[]} content @param {() => void} end
 */
export function drawer(title, tools, content, end) {
  opened?.box.remove();
  const before = document.activeElement;
  const close = () => {
    closeDrawer();
    end();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  };
  const shut = el('button', { type: 'button', class: 'btn icon', 'aria-label': 'Close', onclick: close }, icon('close'));
  const heading = el('h2', { class: 'clip', tabindex: '-1' }, title);
  const box = el('aside', { class: 'drawer', 'aria-label': title },
    el('header', null, heading, tools, shut), el('div', { class: 'content' }, content));
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') close();
  });
  opened = { box, end: close };
  document.body.append(box);
  heading.focus();
  return box;
}

export function closeDrawer() {
  opened?.box.remove();
  opened = null;
}

/** Closes the drawer as its user would; false if none is open. */
export function leaveDrawer() {
  if (!opened) return false;
  opened.end();
  return true;
}

const toasts = el('div', { class: 'toasts', role: 'status' });

/** @param {string} text @param {{ bad?: boolean, link?: [string, string] }} [more] */
export function toast(text, more = {}) {
  if (!toasts.isConnected) document.body.append(toasts);
  const made = el('div', { class: more.bad ? 'toast bad' : 'toast' }, text, more.link ? link(more.link[1], more.link[0]) : '');
  toasts.append(made);
  say(text);
  setTimeout(() => made.remove(), 8000);
}

/** A command that can be copied. @param {string} text */
export function snippet(text) {
  const press = el('button', { type: 'button', class: 'btn icon', 'aria-label': 'Copy', title: 'Copy' }, icon('copy'));
  press.addEventListener('click', async () => {
    await copy(text);
    toast('Copied');
  });
  return el('div', { class: 'snippet' }, el('pre', { tabindex: '0', role: 'region', 'aria-label': 'Command' }, text), press);
}
