// The subscriptions of a client. They outlive connections: each new one is told of all of them.

import { Again } from './again.js';
import type { BackoffOptions } from './backoff.js';
import { AlreadySubscribed, type BusError, Closed, Refused, type SchemaMismatch, Stale } from './errors.js';
import type { AckFrame, DeliveryPlace, ErrorFrame, MessageFrame, NackFrame } from './frames.js';
import type { Membership } from './membership.js';
import { GOING_CODES, type Requests, type Waiter } from './requests.js';
import type { Schemas } from './schema.js';

type Place = Pick<DeliveryPlace, 'topic' | 'group'>;

/** Codes of unasked errors that say that topic, group or permission is gone. */
const FINAL_CODES = ['bad_topic', 'bad_group', 'forbidden'];
/** Codes with which a server refuses a member that it had before, and will take later. A limit may be reached because
 * the server has not yet noticed that the member's last connection is gone. */
const PASSING_CODES = ['rate_limited', 'storage_failed', 'limit_reached'];

export class Subscriptions {
  readonly #requests: Requests;
  readonly #members = new Map<string, Membership>();
  /** Left here, but the server has not confirmed it yet. A new subscription to the same place waits for that: the
   * server may answer a SUBSCRIBE after an UNSUBSCRIBE that was sent behind it. */
  readonly #leaving = new Map<string, Membership>();
  readonly #whenLeft = new Map<Membership, () => void>();
  /** On which connection a delivery came. */
  readonly #epochs = new WeakMap<MessageFrame, number>();
  readonly #again: Again;
  #epoch = 0;

  constructor(requests: Requests, backoff: BackoffOptions) {
    this.#requests = requests;
    this.#again = new Again(backoff);
  }

  get size(): number {
    return this.#members.size;
  }

  add(member: Membership): void {
    const key = keyOf(member.request);
    if (this.#members.has(key)) throw new AlreadySubscribed(member.request.topic, member.request.group);
    this.#members.set(key, member);
    this.#subscribe(key);
  }

  /** Asks again with what the request says now; if an answer is still owed, when it has come. */
  renew(member: Membership): void {
    if (!member.ended && member.phase === 'member') this.#ask(member);
  }

  /** `left` is called when the server will deliver no more; offline it is enough not to subscribe again. */
  remove(member: Membership, left: () => void): void {
    if (member.ended) return left();
    const key = keyOf(member.request);
    this.#members.delete(key);
    member.end(new Closed(), { report: false });
    if (member.phase !== 'asked') this.#again.settled(member);
    if (member.phase === 'idle') return left();
    this.#leaving.set(key, member);
    this.#whenLeft.set(member, left);
    if (member.phase === 'member') this.#unsubscribe(member);
  }

  connected(): void {
    this.#epoch += 1;
    for (const key of this.#members.keys()) this.#subscribe(key);
  }

  /** Every delivery of the lost connection is gone with it. */
  lost(): void {
    this.#again.clear();
    for (const member of this.#members.values()) {
      member.phase = 'idle';
      member.leases.clear();
    }
    for (const member of [...this.#leaving.values()]) this.#left(member);
  }

  deliver(message: MessageFrame, schemas: Schemas): void {
    this.#epochs.set(message, this.#epoch);
    const member = this.#members.get(keyOf(message));
    if (!member) return;
    member.leases.note(message, member.windowMax);
    try {
      const payload = schemas.parse(message.topic, message.envelope.payload);
      message.envelope = { ...message.envelope, payload };
    } catch (error) {
      return this.#unfit(member, message, error as SchemaMismatch);
    }
    member.deliver(message);
  }

  /** Gives back an event that no handler may see. The event comes again until its attempts are used up, and is a dead
   * letter with this reason then: another member may have a newer schema. */
  #unfit(member: Membership, message: MessageFrame, error: SchemaMismatch): void {
    const { topic, partition, group, offset } = message;
    this.answer({ type: 'NACK', topic, partition, group, offset, reason: `${error.code}: ${error.message}` }, message);
    member.report(error, message);
  }

  /** Whether it came on the present connection. */
  isCurrent(message: MessageFrame): boolean {
    return this.#requests.connected && this.#epochs.get(message) === this.#epoch;
  }

  /** `false` when the delivery is not ours to acknowledge any more. */
  mayAnswer(place: DeliveryPlace | MessageFrame): boolean {
    const epoch = 'envelope' in place ? this.#epochs.get(place) : undefined;
    if (epoch !== undefined && epoch !== this.#epoch) return false;
    return this.#requests.connected && this.#members.get(keyOf(place))?.leases.has(place) === true;
  }

  answer(frame: AckFrame | NackFrame, origin: DeliveryPlace, waiter?: Waiter): void {
    if (!this.mayAnswer(origin)) return waiter?.fail(new Stale());
    this.#members.get(keyOf(frame))?.leases.end(frame);
    if (waiter) this.#requests.ask(frame, waiter);
    else this.#requests.tell(frame);
  }

  /** An error nobody asked for. `true` when somebody was told. */
  notice(frame: ErrorFrame): boolean {
    const { topic, group } = frame;
    if (topic === undefined) return false;
    const meant = [...this.#members.values()].filter(
      ({ request }) => request.topic === topic && (group === undefined || request.group === group),
    );
    for (const member of meant) {
      if (FINAL_CODES.includes(frame.code)) this.#refused(member, new Refused(frame));
      else member.report(new Refused(frame));
    }
    return meant.length > 0;
  }

  endAll(error: BusError, { report }: { report: boolean }): void {
    this.lost();
    const members = [...this.#members.values()];
    this.#members.clear();
    for (const member of members) member.end(error, { report });
  }

  #subscribe(key: string): void {
    const member = this.#members.get(key);
    if (!member || member.phase !== 'idle') return;
    if (this.#requests.connected && !this.#leaving.has(key)) this.#ask(member);
  }

  #ask(member: Membership): void {
    const { phase } = member;
    member.phase = 'asked';
    const window = member.request.max_inflight;
    this.#requests.ask(
      { type: 'SUBSCRIBE', ...member.request },
      {
        settle: (answer) => {
          if (answer.type === 'OK' && answer.op === 'SUBSCRIBE') member.subscribed(answer.partitions);
          this.#again.settled(member);
          if (member.ended) this.#unsubscribe(member);
          else if (member.request.max_inflight !== window) this.#ask(member);
        },
        fail: (error) => {
          // Lost, or about to be: the next connection is asked again, for those who are still wanted.
          if (!(error instanceof Refused) || GOING_CODES.includes(error.code)) {
            if (member.ended) this.#left(member);
          } else {
            // The server still has those it had on this connection.
            member.phase = phase;
            this.#notTaken(member, error);
          }
        },
      },
    );
  }

  #notTaken(member: Membership, error: Refused): void {
    if (member.ended) {
      this.#again.settled(member);
      if (member.phase === 'member') this.#unsubscribe(member);
      else this.#left(member);
    } else if (member.confirmed && PASSING_CODES.includes(error.code)) {
      if (!this.#again.has(member)) member.report(error);
      // The listener that was told may have ended the membership.
      if (!member.ended) this.#again.refused(member, error, () => this.#askAgain(member));
    } else {
      this.#refused(member, error);
    }
  }

  /** A resize may have asked meanwhile: its answer counts then. */
  #askAgain(member: Membership): void {
    if (!member.ended && member.phase !== 'asked') this.#ask(member);
  }

  #unsubscribe(member: Membership): void {
    const { topic, group } = member.request;
    const left = (): void => {
      this.#again.settled(member);
      this.#left(member);
    };
    const fail = (error: BusError): void => {
      // To leave has its price too. Not to have left would mean deliveries that nobody hears of.
      const limited = error instanceof Refused && error.code === 'rate_limited';
      if (limited) this.#again.refused(member, error, () => this.#unsubscribe(member));
      else left();
    };
    this.#requests.ask({ type: 'UNSUBSCRIBE', topic, group }, { settle: left, fail });
  }

  #left(member: Membership): void {
    const key = keyOf(member.request);
    if (this.#leaving.get(key) === member) this.#leaving.delete(key);
    this.#whenLeft.get(member)?.();
    this.#whenLeft.delete(member);
    this.#subscribe(key);
  }

  #refused(member: Membership, error: Refused): void {
    const key = keyOf(member.request);
    if (this.#members.get(key) === member) this.#members.delete(key);
    this.#again.settled(member);
    member.end(error, { report: true });
  }
}

/** Names hold no line feed. */
function keyOf({ topic, group }: Place): string {
  return `${topic}\n${group}`;
}
