import type { Client } from './client.js';
import type { ProcessName, World } from './world.js';

/** The system under fault. */
export interface Scene {
  world: World;
  client: Client;
}

/** Ends the fault. */
export type Heal = () => Promise<void> | void;

export interface Fault {
  name: string;
  /** Makes it happen. Returns once it has, with what ends it. */
  inject(scene: Scene): Promise<Heal>;
  /** How long that may take; 30 s unless it says so. */
  injectMs?: number;
  /** How long it lasts, in milliseconds. */
  holdMs?: number;
  /** How long until everything is settled; a minute unless it says so. */
  recoverMs?: number;
  /** Requests have to go wrong meanwhile, or it did not happen. */
  isFelt?: true;
  /** Nothing more is shown by more of the load before it and after. */
  isBrief?: true;
  /** Takes a disk that can be filled. */
  needsDisks?: true;
  /** Leaves a stack that is no good for others: it gets one of its own. */
  isLast?: true;
  /** Programs that rightly end by themselves. */
  mayEnd?: ProcessName[];
  /**
   * What nobody can survive, and what must then be refused: in place of everything else this looks
   * whether it is.
   */
  mustRefuse?(scene: Scene): Promise<string[]>;
  /** More about what was done, for the table. */
  note?(): string;
  /** Looks, after everything is settled, for what else has to hold; returns what does not. */
  expects?(scene: Scene): Promise<string[]>;
}

export interface Outcome {
  name: string;
  /** Why it was left out. */
  skipped?: string;
  /** Identities that had been acknowledged when it happened. */
  before: number;
  /** Requests that were not acknowledged at once while it lasted. */
  failed: number;
  /** Null where it is not the question. */
  lost: number | null;
  double: number | null;
  /** From the end of the fault to the first good answer, and to everything settled and public. */
  answeredMs: number | null;
  settledMs: number | null;
  /** All of it, with looking at everything afterwards. */
  tookMs: number;
  note?: string;
  /** Problems; a row without any passes. */
  problems: string[];
}
