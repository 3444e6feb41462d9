import type { Logger } from '#runtime/log';
import type { Pool } from '#sql/db';

/** What settling revocations works with: no key, for a status entry is not signed. */
export interface LifecycleContext {
  sql: Pool;
  log: Logger;
}
