/** Functions that stop resources, in the order in which the resources were started. */
export type Cleanup = (() => Promise<unknown>)[];

/** Runs `work`, then its cleanup functions, the last first, whether `work` succeeded or failed. */
export async function withCleanup<T>(work: (cleanup: Cleanup) => Promise<T>): Promise<T> {
  const cleanup: Cleanup = [];
  try {
    return await work(cleanup);
  } finally {
    for (const stop of cleanup.reverse()) await stop();
  }
}
