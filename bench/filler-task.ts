import type { FillContext } from './fill.js';

/** What a filling process is told, once. */
export interface FillerTask {
  engineUrl: string;
  workerUrl: string;
  aepKeyFile: string;
  tenant: FillContext['tenant'];
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
