import { HEALTH_OPERATIONS } from './http/health.js';
import { LOG_OPERATIONS } from './log/operations.js';
import { LOOKUP_OPERATIONS } from './lookup/operations.js';
import { documentation } from './openapi/operations.js';
import type { Operation } from './operation.js';
import { PAGE_OPERATIONS } from './page/operations.js';
import { VIEW_OPERATIONS } from './views/operations.js';

/** Every operation of the public API, for the router and the OpenAPI document. */
export const OPERATIONS: readonly Operation[] = [
  ...LOOKUP_OPERATIONS,
  ...VIEW_OPERATIONS,
  ...LOG_OPERATIONS,
  ...PAGE_OPERATIONS,
  ...HEALTH_OPERATIONS,
  ...documentation(() => OPERATIONS.map(({ spec }) => spec)),
];
