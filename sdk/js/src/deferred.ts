// A promise that is settled from elsewhere.

export class Deferred<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T) => void;
  reject!: (error: Error) => void;

  constructor(PromiseClass: PromiseConstructor = Promise) {
    this.promise = new PromiseClass<T>((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // Callers that await the promise are still told. Callers that do not, as those of the source document's `publish`,
    // must not lose the process over it. `Promise.prototype.then`, because this call is no caller's interest.
    Promise.prototype.then.call(this.promise, undefined, () => {});
  }
}

/** Returns a promise that failed before it began, under the same rule. */
export function refusal<T>(error: Error): Promise<T> {
  const deferred = new Deferred<T>();
  deferred.reject(error);
  return deferred.promise;
}
