/**
 * Commits what several ask for together: one group is on its way while the next one gathers.
 */
export class GroupCommit<T> {
  #waiting: { items: readonly T[]; done: () => void; failed: (error: unknown) => void }[] = [];
  #isBusy = false;

  constructor(private readonly commit: (items: T[]) => Promise<void>) {}

  /** Resolves when all of them are committed. */
  add(items: readonly T[]): Promise<void> {
    return new Promise((done, failed) => {
      this.#waiting.push({ items, done, failed });
      if (!this.#isBusy) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#isBusy = true;
    while (this.#waiting.length > 0) {
      const group = this.#waiting.splice(0);
      try {
        await this.commit(group.flatMap(({ items }) => items));
        for (const { done } of group) done();
      } catch (error) {
        for (const { failed } of group) failed(error);
      }
    }
    this.#isBusy = false;
  }
}
