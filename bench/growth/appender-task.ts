import type { FillAs } from '../filling/fill-context.js';

/** What a process that appends when it is told to is given first. */
export interface AppenderTask extends FillAs {
  group: number;
}

/** After that: how many proofs to append now. */
export interface AppendSome {
  count: number;
}

/** What it says of each time. */
export type AppenderMessage = { cpuSeconds: number } | { failed: string };
