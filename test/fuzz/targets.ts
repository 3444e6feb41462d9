import { BINARY_TARGETS } from './binary-targets.js';
import { JSON_TARGETS } from './json-targets.js';
import type { Target } from './target.js';
import { TEXT_TARGETS } from './text-targets.js';

/** Every parser of ours that reads what a stranger sends or serves. Node's own reads HTTP itself. */
export const TARGETS: readonly Target[] = [...JSON_TARGETS, ...TEXT_TARGETS, ...BINARY_TARGETS];
