export interface CoalesceOptions<In, Out> {
  /** The longest that an item waits for company, in milliseconds. */
  maxWaitMs: number;
  /** A group of this size leaves at once. */
  maxItems: number;
  /**
   * The most groups under way at a time. At the limit the next group gathers until one is done, so
   * that under load groups grow instead of crowding each other; any number when not given.
   */
  maxRunning?: number;
  /** Handles a group; the results are in the order of the items. */
  run: (items: In[]) => Promise<Out[]>;
  /**
   * Whether a failed group's items are worth trying one by one. Say no when the failure is not about
   * an item (the database is away), or one failure would become as many as there are items.
   */
  isRetryAlone?: (error: unknown) => boolean;
}

interface Waiting<In, Out> {
  item: In;
  resolve: (result: Out) => void;
  reject: (reason: unknown) => void;
}

/**
 * Gathers calls that are in flight together into groups, and answers each call from its own item: a
 * bad item fails alone, its neighbours are handled without it.
 */
export function coalesce<In, Out>(options: CoalesceOptions<In, Out>): (item: In) => Promise<Out> {
  const { maxWaitMs, maxItems, maxRunning = Infinity } = options;
  const { run, isRetryAlone = () => true } = options;
  const gathering: Waiting<In, Out>[] = [];
  let running = 0;
  let timer: NodeJS.Timeout | undefined;

  async function answer(group: Waiting<In, Out>[]): Promise<void> {
    const results = await run(group.map(({ item }) => item));
    if (results.length !== group.length) {
      throw new Error(`a group of ${String(group.length)} got ${String(results.length)} results`);
    }
    group.forEach(({ resolve }, index) => {
      resolve(results[index] as Out);
    });
  }

  async function handle(group: Waiting<In, Out>[]): Promise<void> {
    try {
      await answer(group);
    } catch (error) {
      if (group.length > 1 && isRetryAlone(error)) await handleAlone(group);
      else for (const { reject } of group) reject(error);
    }
  }

  async function handleAlone(group: Waiting<In, Out>[]): Promise<void> {
    for (const [index, waiting] of group.entries()) {
      try {
        await answer([waiting]);
      } catch (error) {
        waiting.reject(error);
        if (isRetryAlone(error)) continue;
        for (const { reject } of group.slice(index + 1)) reject(error);
        return;
      }
    }
  }

  function leave(): void {
    clearTimeout(timer);
    timer = undefined;
    if (gathering.length === 0 || running >= maxRunning) return;
    start(gathering.splice(0, maxItems));
    if (gathering.length > 0) leave();
  }

  function start(group: Waiting<In, Out>[]): void {
    running += 1;
    void handle(group).then(() => {
      running -= 1;
      // Items that arrived at the limit have waited for this place.
      if (running === maxRunning - 1) leave();
    });
  }

  return (item) =>
    new Promise<Out>((resolve, reject) => {
      gathering.push({ item, resolve, reject });
      if (gathering.length >= maxItems) leave();
      else if (running < maxRunning) timer ??= setTimeout(leave, maxWaitMs);
    });
}
