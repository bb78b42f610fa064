// Values that a test has seen so far, and a way to wait for more without looking at the clock.

export class Collected<T> {
  readonly all: T[] = [];
  #waiting: { enough: (all: T[]) => boolean; resolve: (all: T[]) => void }[] = [];

  push(item: T): void {
    this.all.push(item);
    for (const waiter of this.#waiting.filter(({ enough }) => enough(this.all))) {
      this.#waiting = this.#waiting.filter((other) => other !== waiter);
      waiter.resolve(this.all);
    }
  }

  count(number: number): Promise<T[]> {
    return this.until((all) => all.length >= number);
  }

  until(enough: (all: T[]) => boolean): Promise<T[]> {
    if (enough(this.all)) return Promise.resolve(this.all);
    return new Promise((resolve) => this.#waiting.push({ enough, resolve }));
  }
}
