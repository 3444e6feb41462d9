import type { ItemSource } from '../service/items.js';

/** What the client process is told, once. */
export interface BatchClientTask {
  engineUrl: string;
  publicUrl: string;
  apiKey: string;
  source: ItemSource;
  /** Items of each batch. */
  items: number;
  /** Items that are accepted and not public yet, at most: what keeps every stage busy. */
  underWay: number;
}

/** A batch that was accepted: its items are those of the source from `first` on. */
export interface SentBatch {
  batchId: string;
  first: number;
  items: number;
}

/** What it says. */
export type BatchClientMessage =
  | { sent: SentBatch; answeredMs: number }
  | { waited: { status: number; code: string } }
  | { failed: string };
