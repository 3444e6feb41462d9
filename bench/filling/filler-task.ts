import type { FillAs } from './fill-context.js';

/** What a filling process is told, once. */
export interface FillerTask extends FillAs {
  count: number;
  group: number;
  lanes: number;
  /** Whether to settle first what an earlier run left open. */
  settleLeftovers: boolean;
}

/** What it says. */
export type FillerMessage =
  | { leftovers: number }
  | { filled: number; acceptMs: number; settleMs: number }
  | { over: true; cpuSeconds: number }
  | { failed: string };
