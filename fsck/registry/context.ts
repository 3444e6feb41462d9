import type { Vkey } from '#protocol/note';
import type { Pool } from '#sql/db/transaction';
import type { Findings } from '../findings.js';
import type { KeyHistory } from './keys.js';

/** The context of the registry checks. */
export interface RegistryContext {
  sql: Pool;
  findings: Findings;
  /** The pinned log keys: only checkpoints signed by them count. */
  logVkeys: readonly [Vkey, ...Vkey[]];
  keys: KeyHistory;
  /** The number of leaves to check; the next run checks later appends. */
  size: number;
}
