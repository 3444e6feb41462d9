/** Functions that stop resources, in the order in which the resources were started. */
export type Cleanup = (() => Promise<unknown>)[];

/** Runs all cleanup functions, the last first. */
export async function cleanUp(cleanup: Cleanup): Promise<void> {
  for (const stop of cleanup.reverse()) await stop();
}

/** Runs `work`, then its cleanup functions, whether `work` succeeded or failed. */
export async function withCleanup<T>(work: (cleanup: Cleanup) => Promise<T>): Promise<T> {
  const cleanup: Cleanup = [];
  try {
    return await work(cleanup);
  } finally {
    await cleanUp(cleanup);
  }
}
