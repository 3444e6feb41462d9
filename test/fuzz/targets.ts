import { BINARY_TARGETS } from './binary-targets.js';
import { HTTP_TARGETS } from './http-targets.js';
import { JSON_TARGETS } from './json-targets.js';
import type { Target } from './target.js';
import { TEXT_TARGETS } from './text-targets.js';

/**
 * Every parser of ours that reads what a stranger sends or serves. HTTP is read by Node itself: of that it is
 * held against another reading what our servers let pass.
 */
export const TARGETS: readonly Target[] = [
  ...HTTP_TARGETS,
  ...JSON_TARGETS,
  ...TEXT_TARGETS,
  ...BINARY_TARGETS,
];
