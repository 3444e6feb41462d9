/** What a worker is told that tells how long it holds the append lock. */
export interface TimedWorkerTask {
  databaseUrl: string;
  redisUrl: string;
  aepKeyFile: string;
}

/** Begins to settle. Before, it is ready, and takes nothing. */
export interface Go {
  go: true;
}

/** What it says when it stops: how long each of its transactions held the append lock. */
export interface HeldLock {
  heldMs: number[];
}
