// A search from the frame: a topic, a group, or an event by its id.

import { Problem, get, part } from '../api.js';
import { eventLink } from '../parts/event.js';
import { el, fill, link, muted } from '../parts/dom.js';
import { icon } from '../parts/icons.js';
import { groupLink, topicLink } from '../parts/links.js';

/** @param {string[]} names @returns {import('../main.js').Page} */
export function page(names) {
  const text = names[1] ?? '';
  return {
    title: `Find ${text}`,
    async open({ root, signal }) {
      fill(root, el('h1', null, 'Looking for ', el('code', null, text), '…'));
      const list = /** @type {import('../types.js').TopicList} */ (await get('/topics', { signal }));
      const exact = list.topics.find((topic) => topic.topic === text);
      if (exact) return go(topicLink(text));
      const lower = text.toLowerCase();
      const topics = list.topics.filter((topic) => topic.topic.toLowerCase().includes(lower));
      const groups = list.topics.flatMap((topic) => Object.keys(topic.standing ?? {})
        .filter((group) => group.toLowerCase().includes(lower)).map((group) => [topic.topic, group]));
      let event = null;
      try {
        event = /** @type {any} */ (await get(`/events/${part(text)}`, { signal })).event;
      } catch (error) {
        if (!(error instanceof Problem) || ![400, 404].includes(error.status)) throw error;
      }
      if (event && topics.length + groups.length === 0) return go(eventLink(event.topic, event.partition, event.offset));
      const items = [
        ...(event ? [el('li', null, icon('letters'), link(eventLink(event.topic, event.partition, event.offset), `event ${event.id} of ${event.topic}`))] : []),
        ...topics.map((topic) => el('li', null, icon('topics'), link(topicLink(topic.topic), topic.topic))),
        ...groups.map(([topic = '', group = '']) => el('li', null, icon('person'), link(groupLink(topic, group), `group ${group} of ${topic}`))),
      ];
      fill(root, el('h1', null, 'Found for ', el('code', null, text)),
        items.length > 0 ? el('div', { class: 'card' }, el('ul', { class: 'notes' }, items))
          : muted('Nothing in this namespace has this name or this id, among the topics and the newest events. To look further back, open the topic and search there.'));
    },
  };
}

/** @param {string} hash */
function go(hash) {
  location.replace(hash);
}
