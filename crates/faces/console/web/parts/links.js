// Where things are shown.

import { part } from '../api.js';

/** @param {string} topic */
export const topicLink = (topic) => `#/topics/${part(topic)}`;

/** @param {string} topic @param {string} group */
export const groupLink = (topic, group) => `${topicLink(topic)}/groups/${part(group)}`;
