// A promise that is settled from elsewhere.

export class Deferred<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T) => void;
  reject!: (error: Error) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // Whoever awaits the promise is still told. Whoever does not, as the source document's callers of `publish`, must
    // not lose the process over it.
    this.promise.catch(() => {});
  }
}

/** A promise that failed before it began, under the same rule. */
export function refusal<T>(error: Error): Promise<T> {
  const deferred = new Deferred<T>();
  deferred.reject(error);
  return deferred.promise;
}
