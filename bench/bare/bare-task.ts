import type { ItemSource } from '../service/items.js';

/** What a process of the bare loop is told, once. */
export interface BareTask {
  databaseUrl: string;
  source: ItemSource;
  warmUpSeconds: number;
  seconds: number;
}

/** What it says in the end: of the time after its warm-up, and how many rows there were in all. */
export type BareMessage =
  { rows: number; seconds: number; cpuSeconds: number; allRows: number } | { failed: string };
