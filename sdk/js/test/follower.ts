// Small servers that lead or do not lead, as a test tells them.

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';

import { type WebSocket, WebSocketServer } from 'ws';

import type { ClientFrame, PublishFrame } from '../src/index.js';
import { Collected } from './collected.js';

/** `undefined`: this server leads. Otherwise it names this leader, or none (`null`). */
export type Leader = string | null | undefined;

export class Follower {
  readonly url: string;
  readonly #http: Server;
  /** Looked at for each connection and request. */
  leader: Leader;
  /** Of connections that lead: whether publishes are confirmed. */
  confirms = true;
  /** Also tells by an ERROR frame that it does not lead, not only by closing. */
  tells = true;
  /** Answers AUTH before it says that it does not lead. */
  authenticates = false;
  /** Of each connection and request. */
  readonly authorizations = new Collected<string | undefined>();
  readonly connections = new Collected<WebSocket>();
  /** Frames that were received while this server led. */
  readonly heard = new Collected<ClientFrame>();

  private constructor(http: Server, scheme: string) {
    this.#http = http;
    this.url = `${scheme}://127.0.0.1:${(http.address() as AddressInfo).port}/`;
    const sockets = new WebSocketServer({ server: http });
    sockets.on('connection', (socket, request) => this.#connected(socket, request));
    http.on('request', (request, response) => {
      this.authorizations.push(request.headers.authorization);
      const { leader } = this;
      response.setHeader('content-type', 'application/json');
      if (leader !== undefined) response.statusCode = 503;
      response.end(JSON.stringify(leader === undefined ? { topic: 'made' } : { code: 'moved', detail: 'no', leader }));
    });
  }

  static async start(leader?: Leader, tls?: { cert: string; key: string }): Promise<Follower> {
    const http = tls ? createSecureServer(tls) : createServer();
    http.listen(0, '127.0.0.1');
    await once(http, 'listening');
    const follower = new Follower(http, tls ? 'wss' : 'ws');
    follower.leader = leader;
    return follower;
  }

  get publishes(): PublishFrame[] {
    return this.heard.all.filter((frame) => frame.type === 'PUBLISH');
  }

  /** Tells all connections that another server leads. */
  move(leader: string | null): void {
    this.leader = leader;
    for (const socket of this.connections.all) this.#move(socket, leader);
  }

  async end(): Promise<void> {
    for (const socket of this.connections.all) socket.terminate();
    this.#http.closeAllConnections();
    this.#http.close();
    await once(this.#http, 'close');
  }

  #connected(socket: WebSocket, request: IncomingMessage): void {
    this.authorizations.push(request.headers.authorization);
    const { leader } = this;
    if (leader === undefined) socket.on('message', (data) => this.#received(socket, data.toString()));
    else if (this.authenticates) socket.once('message', (data) => this.#authenticated(socket, data.toString(), leader));
    else this.#move(socket, leader);
    this.connections.push(socket);
  }

  #authenticated(socket: WebSocket, text: string, leader: string | null): void {
    const { type, rid } = JSON.parse(text) as ClientFrame;
    if (type === 'AUTH') socket.send(JSON.stringify({ type: 'OK', op: 'AUTH', rid }));
    this.#move(socket, leader);
  }

  #move(socket: WebSocket, leader: string | null): void {
    if (this.tells) {
      socket.send(JSON.stringify({ type: 'ERROR', code: 'moved', message: 'this server does not lead', leader }));
    }
    const reason = leader ?? '';
    socket.close(1012, Buffer.byteLength(reason) <= 123 ? reason : '');
  }

  #received(socket: WebSocket, text: string): void {
    // A server that leads no longer carries out nothing more.
    if (this.leader !== undefined) return;
    const frame = JSON.parse(text) as ClientFrame;
    this.heard.push(frame);
    const { rid } = frame;
    if (frame.type === 'PUBLISH' && this.confirms) {
      const { topic, id } = frame;
      const offset = this.publishes.length;
      socket.send(
        JSON.stringify({ type: 'PUBLISHED', topic, partition: 0, offset, id, durability: 'fsync', rid }),
      );
    } else if (frame.type === 'SUBSCRIBE') {
      const { topic, group } = frame;
      const partitions = [{ partition: 0, next: 1 }];
      socket.send(JSON.stringify({ type: 'OK', op: 'SUBSCRIBE', topic, group, partitions, rid }));
    } else if (frame.type === 'PING') {
      socket.send(JSON.stringify({ type: 'PONG', rid }));
    } else if (frame.type === 'AUTH') {
      socket.send(JSON.stringify({ type: 'OK', op: 'AUTH', rid }));
    }
  }
}
