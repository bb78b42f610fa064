// The handle on the bus.

import { Deferred, refusal } from './deferred.js';
import { defaultUrl } from './endpoint.js';
import { BadPayload, BusError, Closed, type Disconnected, Refused } from './errors.js';
import type {
  AckFrame,
  AuthFrame,
  DeliveryPlace,
  ErrorFrame,
  Headers,
  MessageFrame,
  NackFrame,
  NewEvent,
  PublishBatchFrame,
  PublishFrame,
  ServerFrame,
} from './frames.js';
import { Link, type LinkState } from './link.js';
import { Membership, type OnError, type OnMessage, type SubscribeRequest } from './membership.js';
import { ObservedPublishes } from './observed.js';
import { extracting, injected } from './open-telemetry.js';
import { type BusClientOptions, DEFAULTS } from './options.js';
import { outside } from './outside.js';
import { batchReceiptOf, type Published, type PublishedBatch, receiptOf, type Scheduled } from './receipts.js';
import { consoleReport } from './report.js';
import { Requests } from './requests.js';
import { Room } from './room.js';
import { type PayloadSchema, Schemas } from './schema.js';
import { ServerList } from './servers.js';
import type { Ack } from './source-names.js';
import { Subscription } from './subscription.js';
import { Subscriptions } from './subscriptions.js';
import { putTopic, type TopicConfig } from './topics.js';
import type { TransportEnd } from './transport.js';
import { uuidv7 } from './uuid.js';

/** Not a number, as all others are: it is asked before anything else may be. */
const AUTH_RID = 'auth';

export type PublishOptions = Omit<NewEvent, 'payload'>;
/** One of the two. */
export type DelayedPublishOptions = PublishOptions &
  ({ delay_ms: number; deliver_at?: never } | { deliver_at: number; delay_ms?: never });

export interface NackOptions {
  reason?: string;
  delay_ms?: number;
}

/** Connects when it is made, and again whenever the connection is lost: subscriptions and unconfirmed publishes carry
 * on. A client has one connection, and any number of publishes in flight and of subscriptions. */
export class BusClient {
  readonly #options: BusClientOptions;
  readonly #onError: OnError;
  readonly #schemas: Schemas;
  readonly #publishes: ObservedPublishes;
  readonly #servers: ServerList;
  readonly #link: Link;
  readonly #room: Room;
  readonly #requests: Requests;
  readonly #subscriptions: Subscriptions;
  /** Deliveries the server may still make; `undefined` before the first FLOW. */
  #credits: number | undefined;
  /** The server said that a frame was too large, which it follows by closing the connection. */
  #oversize = false;
  /** Why there will be nothing more. */
  #ended: BusError | undefined;
  readonly #ending = new AbortController();
  #whenConnected: Deferred<void>[] = [];

  /** Takes the URL of a server, or of several that share a store: in an array, or with commas between them. */
  constructor(url: string | readonly string[] = defaultUrl(), options: BusClientOptions = {}) {
    const settings = { ...DEFAULTS, ...options };
    this.#options = options;
    this.#onError = options.onError ?? consoleReport();
    this.#schemas = new Schemas(options.schemas);
    this.#publishes = new ObservedPublishes((error) => outside(() => this.#onError(error)));
    this.#servers = new ServerList(url, { ...options, hasToken: options.token !== undefined });
    // No text has more characters than bytes.
    const { publishesInflightMax, publishCharsInflightMax, frameBytesMax } = settings;
    this.#room = new Room(publishesInflightMax, publishCharsInflightMax, frameBytesMax);
    this.#requests = new Requests((text) => this.#link.send(text), this.#room, frameBytesMax);
    this.#subscriptions = new Subscriptions(this.#requests, options.backoff ?? {});
    this.#link = new Link(
      {
        servers: this.#servers,
        token: options.token,
        tls: options.tls,
        backoff: options.backoff ?? {},
        idleTimeoutMs: settings.idleTimeoutMs,
        giveUpAfterMs: options.giveUpAfterMs ?? Infinity,
        openTransport: options.openTransport,
      },
      {
        opened: (tokenSent) => this.#opened(tokenSent),
        received: (text) => this.#received(text),
        silent: () => this.#link.send('{"type":"PING"}'),
        lost: (end) => this.#lost(end),
        disconnected: (error) => this.#disconnected(error),
        failed: (error) => this.#end(error),
        changed: (state, reason) => outside(() => this.#options.onState?.(state, reason)),
      },
    );
    this.#link.start();
  }

  get state(): LinkState {
    return this.#link.state;
  }

  /** The server that there is a connection to. Right after connecting, it may still answer that another one leads. */
  get url(): string | undefined {
    return this.#link.endpoint?.ws;
  }

  /** Aborted when there will be nothing more, closed or failed, with the `BusError` as its reason. */
  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Resolves when there is a connection; rejects when there will be none. */
  connected(): Promise<void> {
    if (this.#ended) return refusal(this.#ended);
    if (this.#requests.connected) return Promise.resolve();
    const waiter = new Deferred<void>();
    this.#whenConnected.push(waiter);
    return waiter.promise;
  }

  /** Resolves when the event is as durable as the answer says. The event is sent again after a lost connection, under
   * the same id, so that the server stores it once. */
  publish<T>(topic: string, payload: T, key?: string | null, headers?: Headers | null): Promise<Published>;
  publish<T>(topic: string, payload: T, options: DelayedPublishOptions): Promise<Published | Scheduled>;
  publish<T>(topic: string, payload: T, options: PublishOptions): Promise<Published>;
  publish<T>(
    topic: string,
    payload: T,
    keyOrOptions?: string | PublishOptions | DelayedPublishOptions | null,
    headers?: Headers | null,
  ): Promise<Published | Scheduled> {
    const options = optionsOf(keyOrOptions ?? {});
    // Plain JavaScript can bring headers behind options too: they are not dropped.
    const given: PublishOptions = { ...(headers ? { headers } : {}), ...options };
    const id = given.id ?? uuidv7();
    const frame: PublishFrame<T> = { type: 'PUBLISH', topic, ...this.#traced(given), id, payload };
    return this.#publish(frame, [id], (answer) => ('offsets' in answer ? undefined : receiptOf(answer)));
  }

  /** All of them or none. Each gets an id of its own if it has none. */
  publishBatch<T>(topic: string, events: NewEvent<T>[]): Promise<PublishedBatch> {
    const named = events.map((event) => ({ ...this.#traced(event), id: event.id ?? uuidv7() }));
    const ids = named.map(({ id }) => id);
    const frame: PublishBatchFrame<T> = { type: 'PUBLISH_BATCH', topic, events: named };
    return this.#publish(frame, ids, (answer) => ('offsets' in answer ? batchReceiptOf(answer, ids) : undefined));
  }

  /** From now on payloads of this topic are checked, on publish and on receipt; `undefined` ends that. A publish that
   * does not match is refused with `SchemaMismatch` and sent as it was given if it does. A delivery that does not match
   * is told to `onError` and given back with a NACK, so that it ends as a dead letter; handlers get what the schema
   * made of the payload. */
  useSchema(topic: string, schema: PayloadSchema | undefined): void {
    this.#schemas.set(topic, schema);
  }

  /** Resolves when the next publish, whatever its size, will not be refused with `QueueFull`, if nobody else comes
   * first: when there is room for a frame of `frameBytesMax`. */
  waitForRoom(): Promise<void> {
    return this.#room.wait();
  }

  /** Resolves when every publish so far is confirmed or has failed. */
  flush(): Promise<void> {
    return this.#requests.flushed();
  }

  /** Calls `onMessage` for each delivery, from now on and over all reconnects. Throws if this client is a member of
   * the group already. `onError` hears of refusals, also of the end of the subscription, and of handlers that throw;
   * without it the client's own does. */
  subscribe<T = unknown>(req: SubscribeRequest, onMessage: OnMessage<T>, onError?: OnError): Subscription {
    if (this.#ended) throw this.#ended;
    const report = onError ?? this.#onError;
    // The server knows no types: that payloads are `T` is the caller's word, or the schema's.
    const handler = extracting(this.#options.openTelemetry, onMessage as OnMessage);
    const member = new Membership(req, handler, (error, message) =>
      outside(() => report(error, message)),
    );
    this.#subscriptions.add(member);
    return new Subscription(member, this.#subscriptions);
  }

  /** Sends an ACK or NACK frame, or acknowledges a message. The frame is not confirmed, and dropped if the delivery
   * came on a connection that is gone: the event is delivered again then. */
  ack(frame: AckFrame | NackFrame | Ack | MessageFrame): void {
    this.#subscriptions.answer(frame.type === 'MESSAGE' ? ackOf(frame) : frame, frame);
  }

  /** Resolves when the ack is durable. */
  ackConfirmed(frame: DeliveryPlace): Promise<void> {
    return this.#confirmed((waiter) => this.#subscriptions.answer(ackOf(frame), frame, waiter));
  }

  /** Gives the event back, to be delivered again at once or after `delay_ms`. */
  nack(frame: DeliveryPlace, options: NackOptions = {}): void {
    this.#subscriptions.answer(nackOf(frame, options), frame);
  }

  /** Resolves when the server has taken it back. */
  nackConfirmed(frame: DeliveryPlace, options: NackOptions = {}): Promise<void> {
    return this.#confirmed((waiter) => this.#subscriptions.answer(nackOf(frame, options), frame, waiter));
  }

  /** Whether the message came on the present connection. If not, it is delivered again, here or elsewhere. */
  isCurrent(message: MessageFrame): boolean {
    return this.#subscriptions.isCurrent(message);
  }

  /** Lets the server deliver this many more events on the whole connection. The first call switches the client to
   * credits; without any, only the windows of the subscriptions count. */
  flow(credits: number): void {
    this.#credits = (this.#credits ?? 0) + credits;
    this.#requests.tell({ type: 'FLOW', credits });
  }

  /** Resolves when the server has answered. */
  ping(): Promise<void> {
    return this.#confirmed((waiter) => this.#requests.ask({ type: 'PING' }, waiter));
  }

  /**
   * Creates a topic with settings of its own; without this, topics come into being by their first use. A topic that exists
   * keeps the settings that are not given.
   */
  registerTopic(topic: string, config: TopicConfig = {}): Promise<TopicConfig & { topic: string }> {
    return putTopic(this.#servers, this.#options, topic, config, this.#link.endpoint);
  }

  /** Sends what was asked before, then ends the connection. Publishes that are not confirmed by then fail with
   * `Closed`: await them, or `flush()`, first. */
  async close(): Promise<void> {
    const error = this.#refuseMore(new Closed());
    await this.#link.close();
    this.#end(error);
  }

  #traced<E extends { headers?: Headers }>(event: E): E {
    const headers = injected(this.#options.openTelemetry, event.headers);
    return headers === event.headers ? event : { ...event, headers };
  }

  #publish<R>(
    frame: PublishFrame | PublishBatchFrame,
    ids: string[],
    receipt: (answer: Extract<ServerFrame, { type: 'PUBLISHED' }>) => R | undefined,
  ): Promise<R> {
    const deferred = this.#publishes.begin<R>(frame.topic, ids);
    try {
      if (this.#ended) throw this.#ended;
      checkPayloads(frame, this.#schemas);
      this.#requests.publish(frame, {
        settle: (answer) => {
          const made = answer.type === 'PUBLISHED' ? receipt(answer) : undefined;
          if (made !== undefined) deferred.resolve(made);
          else deferred.reject(new BusError('bad_frame', `the server's answer makes no sense: ${answer.type}`));
        },
        fail: (error) => deferred.reject(error),
      });
    } catch (error) {
      deferred.reject(error instanceof BusError ? error : new BadPayload(String(error), { cause: error }));
    }
    return deferred.promise;
  }

  #confirmed(ask: (waiter: { settle(): void; fail(error: BusError): void }) => void): Promise<void> {
    if (this.#ended) return refusal(this.#ended);
    const deferred = new Deferred<void>();
    ask({ settle: () => deferred.resolve(), fail: (error) => deferred.reject(error) });
    return deferred.promise;
  }

  #opened(tokenSent: boolean): void {
    const { token } = this.#options;
    if (token === undefined || tokenSent) return this.#ready();
    this.#link.send(JSON.stringify({ type: 'AUTH', token, rid: AUTH_RID } satisfies AuthFrame));
  }

  #authenticated(answer: ServerFrame): void {
    if (answer.type !== 'ERROR') return this.#ready();
    // Waiting does not make a wrong token right. A server that is about to go may take it next time.
    if (answer.code === 'shutting_down') return this.#link.drop(answer.message);
    this.#end(new Refused(answer));
    void this.#link.close();
  }

  #ready(): void {
    this.#requests.opened();
    // Before any subscription, so that nothing is delivered without a credit.
    if (this.#credits !== undefined) this.#requests.tell({ type: 'FLOW', credits: this.#credits });
    this.#subscriptions.connected();
    this.#requests.resend();
    for (const waiter of this.#whenConnected.splice(0)) waiter.resolve();
  }

  /** Returns whether the frame came from a server that leads. Another one answers AUTH before it says `moved`. */
  #received(text: string): boolean {
    const frame = parse(text);
    if (!frame) return true;
    if (frame.type === 'ERROR' && frame.code === 'moved') {
      this.#moved(frame);
      return false;
    }
    if (frame.type === 'MESSAGE') {
      this.#deliver(frame);
    } else if (frame.type === 'MESSAGES') {
      const { topic, partition, group } = frame;
      for (const envelope of frame.envelopes) {
        this.#deliver({ type: 'MESSAGE', topic, partition, group, offset: envelope.offset, envelope });
      }
    } else if (typeof frame.rid === 'number') {
      this.#requests.answered(frame.rid, frame);
    } else if (frame.rid === AUTH_RID) {
      this.#authenticated(frame);
      return false;
    } else if (frame.type === 'ERROR') {
      this.#oversize ||= frame.code === 'too_large';
      if (!this.#subscriptions.notice(frame)) outside(() => this.#onError(new Refused(frame)));
    }
    return true;
  }

  #deliver(message: MessageFrame): void {
    // A closed client wants no more events; the server gives this one to another member.
    if (this.#ended) return;
    if (this.#credits !== undefined) this.#credits = Math.max(0, this.#credits - 1);
    this.#subscriptions.deliver(message, this.#schemas);
  }

  /** The server does not lead, carries out nothing more, and closes the connection next. */
  #moved({ rid, leader, ...frame }: ErrorFrame): void {
    if (typeof rid === 'number') this.#requests.answered(rid, { ...frame, rid });
    this.#link.moved(frame.message, typeof leader === 'string' ? leader : undefined);
  }

  #disconnected(error: Disconnected): void {
    this.#requests.unreachable(error.reason);
    outside(() => this.#onError(error));
  }

  #lost(end: TransportEnd): void {
    this.#requests.lost(end.reason);
    this.#subscriptions.lost();
    if (end.oversize || this.#oversize) this.#requests.failLargest();
    this.#oversize = false;
  }

  /** The first reason stays. */
  #refuseMore(error: BusError): BusError {
    this.#ended ??= error;
    this.#ending.abort(this.#ended);
    return this.#ended;
  }

  #end(error: BusError): void {
    this.#refuseMore(error);
    this.#requests.failAll(error);
    this.#room.close(error);
    this.#subscriptions.endAll(error, { report: !(error instanceof Closed) });
    for (const waiter of this.#whenConnected.splice(0)) waiter.reject(error);
  }
}

function ackOf({ topic, partition, group, offset }: DeliveryPlace): AckFrame {
  return { type: 'ACK', topic, partition, group, offset };
}

function nackOf({ topic, partition, group, offset }: DeliveryPlace, options: NackOptions): NackFrame {
  return { type: 'NACK', topic, partition, group, offset, ...options };
}

/** A newer server may say more than this client understands. */
function parse(text: string): ServerFrame | undefined {
  try {
    const frame = JSON.parse(text) as ServerFrame | null;
    return typeof frame?.type === 'string' ? frame : undefined;
  } catch {
    return undefined;
  }
}

/** JSON leaves out what it cannot say, and the server would find the payload missing. */
function checkPayloads(frame: PublishFrame | PublishBatchFrame, schemas: Schemas): void {
  for (const { payload } of frame.type === 'PUBLISH' ? [frame] : frame.events) {
    if (payload === undefined || typeof payload === 'function' || typeof payload === 'symbol') {
      throw new BadPayload(`it is ${payload === undefined ? 'undefined' : `a ${typeof payload}`}`);
    }
    schemas.parse(frame.topic, payload);
  }
}

function optionsOf(keyOrOptions: string | PublishOptions): PublishOptions {
  return typeof keyOrOptions === 'object' ? keyOrOptions : { key: keyOrOptions };
}
