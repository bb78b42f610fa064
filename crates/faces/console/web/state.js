// What outlives a page: who is looking, at which namespace, how times and colours are shown, whether polling rests.

/** @typedef {import('./types.js').WhoAmI} WhoAmI */

/** @param {string} name */
const kept = (name) => {
  try {
    return localStorage.getItem(`millrace.${name}`);
  } catch {
    return null;
  }
};

/** @param {string} name @param {string | null} value */
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(`millrace.${name}`);
    else localStorage.setItem(`millrace.${name}`, value);
  } catch {
    // A browser that keeps nothing still shows everything.
  }
}

export const state = {
  /** @type {WhoAmI | null} */
  who: null,
  namespace: kept('namespace') ?? 'default',
  /** `local`, `utc` or `relative`. */
  clock: kept('clock') ?? 'local',
  /** `system`, `light` or `dark`. */
  theme: kept('theme') ?? 'system',
  density: kept('density') ?? 'wide',
  keys: kept('keys') !== 'off',
  paused: false,
  /** The server's clock less this browser's. */
  skew: 0,
  /** `connecting`, `connected`, `away`. */
  link: 'connecting',
};

/** @type {Map<string, Set<() => void>>} */
const listeners = new Map();

/** @param {string} of @param {() => void} listener @returns {() => void} ends it */
export function on(of, listener) {
  const set = listeners.get(of) ?? new Set();
  set.add(listener);
  listeners.set(of, set);
  return () => set.delete(listener);
}

/** @param {string} of */
export function tell(of) {
  for (const listener of [...(listeners.get(of) ?? [])]) listener();
}

/** Whether the caller may do something; the server decides in any case. @param {string} scope */
export function may(scope) {
  const scopes = state.who?.scopes ?? [];
  return scopes.includes(scope) || scopes.includes('admin');
}

/** The beginning of a curl command for this server. A token is named, never printed. */
export const curl = () => (wantsToken() ? 'curl -H "Authorization: Bearer $MILLRACE_TOKEN"' : 'curl');

/** Whether commands need a token, which they take from `MILLRACE_TOKEN`. */
export const wantsToken = () => state.who !== null && !state.who.open;

/** The reason why something cannot be done, for a disabled control; `null` if it can. @param {...string} scopes */
export function missing(...scopes) {
  const lacking = scopes.filter((scope) => !may(scope));
  return lacking.length === 0 ? null : `your token has no scope ${lacking.join(', ')}`;
}
