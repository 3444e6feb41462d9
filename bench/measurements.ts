import type { Measurement } from './row.js';
import { batch } from './rows/batch.js';
import { execute } from './rows/execute.js';
import { fairness } from './rows/fairness.js';
import { freshness } from './rows/freshness.js';
import { growth } from './rows/growth.js';
import { lookup } from './rows/lookup.js';
import { memory } from './rows/memory.js';
import { scaling } from './rows/scaling.js';
import { storage } from './rows/storage.js';

/** All of `npm run bench`, in the order in which they run. */
export const MEASUREMENTS: readonly Measurement[] = [
  batch,
  execute,
  fairness,
  freshness,
  // The first of these fills the registry that the next three look at.
  growth,
  storage,
  lookup,
  memory,
  scaling,
];
