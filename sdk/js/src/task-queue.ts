// Tasks for a group of workers. Acks are individual, so that a task that ends early completes only itself.

import type { BusClient, DelayedPublishOptions, PublishOptions } from './client.js';
import { HandlerFailed } from './errors.js';
import type { From, Headers, MessageFrame } from './frames.js';
import type { OnError } from './membership.js';
import { outside } from './outside.js';
import type { Published, Scheduled } from './receipts.js';
import type { Subscription } from './subscription.js';

const CONCURRENCY_DEFAULT = 16;

export interface Task<T = unknown> {
  /** The event's id: the same in every attempt. */
  id: string;
  topic: string;
  /** As it was enqueued. */
  payload: T;
  key?: string;
  headers?: Headers;
  /** Which delivery this is, from 1 on. */
  attempts: number;
}

export type TaskHandler<T = unknown> = (task: Task<T>) => unknown;

export interface StartOptions {
  /** Tasks that run at the same time. */
  concurrency?: number;
  /** Where a group begins that has never been: by default with the oldest task there is, so that none is missed. */
  from?: From;
  /** How long a failed task waits for its next attempt. After the topic's `maxAttempts` it is dead-lettered. */
  retryDelayMs?: (task: Task, error: unknown) => number;
  /** Hears of failed attempts too, as `handler_failed`. */
  onError?: OnError;
}

/** A delivered task and its newest delivery. A task that is delivered again while it runs here, because the connection
 * or its lease was lost, is not started a second time: the newest delivery gets the answer. */
interface Held {
  message: MessageFrame;
  running: boolean;
}

export class TaskQueue<T = unknown> {
  readonly #bus: BusClient;
  readonly #topic: string;
  readonly #group: string;
  readonly #held = new Map<string, Held>();
  #running = 0;
  #concurrency = CONCURRENCY_DEFAULT;
  #subscription: Subscription | undefined;
  #stopping = false;
  /** Acks and nacks on their way. */
  readonly #answers = new Set<Promise<void>>();
  #whenIdle: (() => void)[] = [];
  #handler: TaskHandler<T> = () => {};
  #options: StartOptions = {};

  constructor(bus: BusClient, topic: string, group = 'workers') {
    this.#bus = bus;
    this.#topic = topic;
    this.#group = group;
  }

  /** Resolves when the task is durable. */
  enqueue(payload: T, key?: string): Promise<Published>;
  enqueue(payload: T, options: DelayedPublishOptions): Promise<Published | Scheduled>;
  enqueue(payload: T, options: PublishOptions): Promise<Published>;
  enqueue(payload: T, keyOrOptions?: string | PublishOptions): Promise<Published | Scheduled> {
    return this.#bus.publish(
      this.#topic,
      payload,
      typeof keyOrOptions === 'string' ? { key: keyOrOptions } : (keyOrOptions ?? {}),
    );
  }

  /** A result is an ACK, an exception a NACK with its text. Resolves when the server has confirmed the worker. */
  async start(handler: TaskHandler<T>, options: StartOptions = {}): Promise<void> {
    if (this.#subscription?.active) throw new Error('the queue is already started');
    this.#handler = handler;
    this.#options = options;
    this.#concurrency = options.concurrency ?? CONCURRENCY_DEFAULT;
    this.#stopping = false;
    this.#subscription = this.#bus.subscribe<T>(
      {
        topic: this.#topic,
        group: this.#group,
        from: options.from ?? { kind: 'earliest' },
        max_inflight: this.#concurrency,
        ack_mode: 'individual',
      },
      (message) => this.#take(message),
      options.onError,
    );
    await this.#subscription.ready;
  }

  /** Takes no more tasks, waits until those that run are done and their acks durable, and leaves the group. */
  async stop(): Promise<void> {
    const subscription = this.#subscription;
    if (!subscription) return;
    this.#stopping = true;
    // As long as one task runs, a window of one lets no other in. Leaving now would hand the running ones to others.
    if (this.#running > 0) subscription.resize(1);
    while (this.#running > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
    this.#held.clear();
    // Not after the answers have come: the freed window would let another task in.
    await Promise.all([subscription.unsubscribe(), ...this.#answers]);
    this.#subscription = undefined;
  }

  #take(message: MessageFrame): void {
    const place = `${message.partition}:${message.offset}`;
    const held = this.#held.get(place);
    if (held) held.message = message;
    // A task that is not taken while stopping goes to another worker when this one leaves.
    else if (!this.#stopping) this.#held.set(place, { message, running: false });
    this.#startMore();
  }

  /** After a reconnect the server knows nothing of what still runs here, and may deliver more than has room. */
  #startMore(): void {
    for (const [place, held] of this.#held) {
      if (this.#stopping || this.#running >= this.#concurrency) return;
      if (held.running) continue;
      // Waited too long: its connection is gone, and another worker may have it.
      if (!this.#bus.isCurrent(held.message)) this.#held.delete(place);
      else void this.#run(place, held);
    }
  }

  async #run(place: string, held: Held): Promise<void> {
    held.running = true;
    this.#running += 1;
    const task = taskOf<T>(held.message);
    try {
      await this.#handler(task);
      this.#answered(this.#bus.ackConfirmed(held.message));
    } catch (error) {
      this.#failed(held.message, task, error);
    }
    this.#held.delete(place);
    this.#running -= 1;
    this.#startMore();
    if (this.#running === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  #failed(message: MessageFrame, task: Task<T>, error: unknown): void {
    const delay = this.#retryDelay(task, error);
    const nack = { reason: String(error), ...(delay === undefined ? {} : { delay_ms: delay }) };
    this.#answered(this.#bus.nackConfirmed(message, nack));
    outside(() => this.#options.onError?.(new HandlerFailed(`the handler of task ${task.id}`, error), message));
  }

  /** An answer that does not arrive makes the server deliver the task again: nothing is to be done about it here. */
  #answered(answer: Promise<void>): void {
    const settled = answer.catch(() => {}).finally(() => this.#answers.delete(settled));
    this.#answers.add(settled);
  }

  /** Without a usable answer the task is tried again at once. */
  #retryDelay(task: Task<T>, error: unknown): number | undefined {
    let delay: number | undefined;
    outside(() => {
      delay = this.#options.retryDelayMs?.(task, error);
    });
    return delay === undefined ? undefined : Math.max(0, Math.round(delay));
  }
}

function taskOf<T>({ topic, envelope }: MessageFrame): Task<T> {
  const { id, key, headers, attempts } = envelope;
  return {
    id,
    topic,
    payload: envelope.payload as T,
    ...(key === undefined ? {} : { key }),
    ...(headers === undefined ? {} : { headers }),
    attempts: attempts ?? 1,
  };
}
