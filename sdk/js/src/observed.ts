// Failures of publishes that nobody awaits. JavaScript tells of them by ending the process, which is too much for an
// event that was refused, and by nothing at all once the promise has a handler of its own. So the promise of a publish
// notes whether it was awaited, and a failure without a listener goes to the client's `onError`.

import { Deferred } from './deferred.js';
import { type BusError, PublishFailed } from './errors.js';

/** Notes whether somebody asked for the outcome. `await`, `Promise.all` and a `return` from an async function call
 * `then` too, because this class is not `Promise` itself. */
export class ObservedPromise<T> extends Promise<T> {
  #observed = false;

  /** Promises made by `then` are plain ones: the runtime reports those itself. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  get observed(): boolean {
    return this.#observed;
  }

  override then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#observed = true;
    return super.then(fulfilled, rejected);
  }
}

interface Failure {
  promise: ObservedPromise<unknown>;
  error: PublishFailed;
}

/** Publishes whose failure is told to `report`, unless their promise is awaited by then. */
export class ObservedPublishes {
  readonly #report: (error: PublishFailed) => void;
  /** Failures of the present turn of the event loop. */
  #failures: Failure[] = [];

  constructor(report: (error: PublishFailed) => void) {
    this.#report = report;
  }

  /** Returns the promise's two ends. */
  begin<T>(topic: string, ids: string[]): Deferred<T> {
    const deferred = new Deferred<T>(ObservedPromise);
    const reject = deferred.reject;
    deferred.reject = (error) => {
      reject(error);
      this.#failed({
        promise: deferred.promise as ObservedPromise<T>,
        error: new PublishFailed(topic, ids, error as BusError),
      });
    };
    return deferred;
  }

  /** Looks when the turn is over, because `await` of a promise that has failed already calls `then` a moment later. */
  #failed(failure: Failure): void {
    if (this.#failures.push(failure) === 1) setTimeout(() => this.#look(), 0);
  }

  #look(): void {
    const failures = this.#failures;
    this.#failures = [];
    for (const { promise, error } of failures) if (!promise.observed) this.#report(error);
  }
}
