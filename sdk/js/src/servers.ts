// The servers that a client may use: the URLs that its user listed, and the rule for a leader that a server names.

import { Endpoint } from './endpoint.js';
import { BadUrl } from './errors.js';

/** Most URLs of a list. */
const SERVERS_MAX = 64;
/** Longest URL of a leader that is looked at. */
const LEADER_CHARS_MAX = 1024;

/** Which leaders outside the list a client follows. `auto`: all if the client has no token, otherwise only leaders with
 * TLS that a server with TLS names. `always`: all, also if the token then goes to a host that was not listed, without
 * TLS; never from TLS to no TLS. `listed`: none. */
export type FollowLeader = 'auto' | 'always' | 'listed';

export interface ServerListOptions {
  namespace?: string | undefined;
  payloadSha256?: boolean | undefined;
  followLeader?: FollowLeader | undefined;
  hasToken: boolean;
}

/** A server, or several that share a store, in the order in which they are tried. */
export class ServerList {
  readonly endpoints: readonly Endpoint[];
  readonly #options: ServerListOptions;

  /** Takes one URL, several separated by commas, or an array of such texts. A list must have TLS everywhere or nowhere:
   * an attacker who blocks the URLs with TLS must not make a client send its token without. */
  constructor(urls: string | readonly string[], options: ServerListOptions) {
    this.#options = options;
    const texts = [urls].flat().flatMap((text) => text.split(',').map((url) => url.trim()));
    this.endpoints = texts.map((text) => this.#endpoint(text));
    if (texts.length === 0 || texts.length > SERVERS_MAX) {
      throw new BadUrl(texts.join(','), `give 1 to ${SERVERS_MAX} URLs`);
    }
    if (this.endpoints.some(({ tls }) => tls !== this.endpoints[0]?.tls)) {
      const reason = 'some URLs have TLS and some have not: give all of them with wss://, or none';
      throw new BadUrl(texts.join(','), reason);
    }
  }

  /** Returns where to connect when the server at `by` says that `named` leads, or why that leader must not be followed.
   * The URL is data from the network. The rule:
   *
   * 1. A leader whose host and port are in the list is used, under the URL of the list.
   * 2. From a connection with TLS only a leader with TLS is followed.
   * 3. A client with a token follows a leader that is not in the list only from a connection with TLS: there the server
   *    that names the leader has proved who it is, and so must the leader. The option `followLeader` widens or narrows
   *    this. */
  leader(named: string, by: Endpoint): Endpoint | string {
    const leader = named.length > LEADER_CHARS_MAX ? undefined : this.#parse(named);
    if (!leader) return 'it is no URL of a server';
    const listed = this.endpoints.find(({ place }) => place === leader.place);
    if (listed) return listed;
    const { followLeader = 'auto', hasToken } = this.#options;
    if (followLeader === 'listed') return 'it is not in the list of servers, and only those are used';
    if (by.tls && !leader.tls) return 'it has no TLS, and the connection that named it has';
    if (hasToken && !by.tls && followLeader !== 'always') {
      return 'it is not in the list of servers, and the token is sent to other hosts only over TLS';
    }
    return leader;
  }

  #parse(named: string): Endpoint | undefined {
    try {
      return this.#endpoint(named);
    } catch {
      return undefined;
    }
  }

  #endpoint(text: string): Endpoint {
    return new Endpoint(text, this.#options.namespace, this.#options.payloadSha256);
  }
}
